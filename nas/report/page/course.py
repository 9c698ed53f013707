"""The sections on how a search went, and how it is repeated: hypervolume, operators, failures."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from nas.report.page.figures import course_figure
from nas.report.page.markup import Markup, element, join, link, table
from nas.report.page.operators import operators_of
from nas.report.text import last_line, plural
from nas.report.trials import points
from nas.report.units import amount, duration, header

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nas.evaluation.trial import Incident
    from nas.report.page.content import Content
    from nas.report.page.markup import Cell
    from nas.store.records import PastSession

MOST_FAILURES: Final = 10


def course(contents: Sequence[Content]) -> Markup:
    """How all searches went."""
    figures = [course_figure(contents, over_time=over_time) for over_time in (False, True)]
    parts: list[Markup | None] = [element("div", *figures, class_="pair")]
    parts.append(element("div", id="timeline", class_="live"))
    for content in contents:
        parts.append(_operators(content, contents))
        parts.append(_failures(content))
        parts.append(_incidents(content))
    return join(*parts)


def _operators(content: Content, contents: Sequence[Content]) -> Markup:
    first, found = content.setup.objectives[0], operators_of(content)
    rows: list[list[Cell]] = [
        [
            one.name,
            f"{one.trained:,}",
            str(one.failed),
            _share(one.joined, one.trained),
            str(one.stayed),
            points(*one.gain, first.unit).replace("-", "−") if one.gain else "",
            f"{one.core_seconds / 60:.1f}",
        ]
        for one in found
    ]
    heads = ("operator", "trained", "failed", "ever in a front", "in the last", "over parent")
    note = (
        f"Over parent: mean difference in {first.name.replace('_', ' ')} to the better parent, "
        "by estimates; positive is better."
    )
    return join(
        element("h3", "Which operators paid"),
        run_title(content, contents),
        element("div", table([*heads, "core min"], rows), class_="scroll"),
        element("p", note, class_="note"),
    )


def _share(part: int, whole: int) -> Markup:
    share = element("meter", value=f"{part / whole:.3f}", min="0", max="1", aria_hidden="true")
    return join(element("span", str(part), class_="count-of"), share)


def _failures(content: Content) -> Markup | None:
    failed = [row for row in content.trials if row["status"] != "ok"]
    if not failed:
        return join(element("h3", "Failures"), element("p", "No training failed.", class_="note"))
    reasons: dict[str, list[str]] = {}
    for row in failed:
        reasons.setdefault(row["reason"] or row["status"], []).append(row["key"])
    texts = {row["key"]: last_line(row["error"]) for row in failed}
    rows: list[list[Cell]] = [
        [reason.replace("_", " "), f"{len(keys):,}", join(*_examples(content, keys, texts))]
        for reason, keys in sorted(reasons.items(), key=lambda found: -len(found[1]))
    ]
    grid = table(("reason", "trainings", "which, and the last line of each error"), rows)
    return join(element("h3", "Failed or stopped"), element("div", grid, class_="scroll"))


def _incidents(content: Content) -> Markup | None:
    """What befell machines, most frequent first; it changed no result."""
    if not content.incidents:
        return None
    found: dict[str, list[Incident]] = {}
    for incident in content.incidents:
        found.setdefault(incident.kind, []).append(incident)
    rows: list[list[Cell]] = [
        [
            kind,
            f"{len(own):,}",
            f"{sum(one.key is not None for one in own):,}",
            join(*(element("div", text) for text in _told(own))),
        ]
        for kind, own in sorted(found.items(), key=lambda pair: -len(pair[1]))
    ]
    grid = table(("what", "times", "trainings begun again", "what was said"), rows)
    return join(
        element("h3", "What befell machines", element("small", "it changed no result")),
        element("div", grid, class_="scroll"),
    )


def _told(own: Sequence[Incident]) -> Iterator[str]:
    """The sentences that differ, and on which worker."""
    texts = dict.fromkeys(f"{one.worker}: {one.text}".removeprefix(": ") for one in own)
    yield from islice(texts, MOST_FAILURES)
    if len(texts) > MOST_FAILURES:
        yield f"and {len(texts) - MOST_FAILURES:,} more"


def _examples(content: Content, keys: Sequence[str], texts: dict[str, str]) -> Iterator[Markup]:
    for key in keys[:MOST_FAILURES]:
        digest = content.trained[key].digest
        pointed = link(content.called(key), content.name, digest)
        yield element("div", pointed, f" {texts[key]}")
    if len(keys) > MOST_FAILURES:
        yield element("div", f"and {len(keys) - MOST_FAILURES:,} more")


def provenance(content: Content) -> Markup:
    """What a run came from: commands, seed, versions, hardware, and its documents whole."""
    setup = content.setup
    facts = {
        "run seed": str(setup.seed),
        "algorithm": f"{setup.algorithm}, {setup.population} a generation, "
        f"{plural(setup.repeats, 'training')} each at first",
        "hardware": ", ".join(dict.fromkeys(row["hardware"] for row in content.trials)) or "none",
        "hypervolume": f"{content.hypervolume:.4f}, reference "
        + ", ".join(
            f"{header(o.name, o.unit)} {amount(o.reference, o.unit)}" for o in setup.objectives
        ),
    }
    sessions = [
        element(
            "div",
            element("pre", past.session.command),
            element("p", _session_line(past), class_="note"),
        )
        for past in content.sessions
    ]
    documents = [
        element(
            "details",
            element("summary", f"{kind} {found.name} ", element("code", found.fingerprint)),
            element("pre", found.text),
        )
        for kind in ("task", "space", "policy")
        for found in [getattr(setup, kind)]
    ]
    terms = [join(element("dt", name), element("dd", value)) for name, value in facts.items()]
    return element(
        "article",
        element("h3", f"Run {content.name}"),
        *sessions,
        element("dl", *terms),
        *documents,
    )


def _session_line(past: PastSession) -> str:
    found, started, ended = past.session, past.started, past.ended
    took = duration((ended - started).total_seconds()) if ended else "did not end by itself"
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    return (
        f"{started:%Y-%m-%d %H:%M} UTC, {took}; {plural(found.workers, 'worker')} on "
        f"{found.hardware}; {versions}"
    )


def run_title(content: Content, contents: Sequence[Content]) -> Markup | None:
    """Which run something is of, where there are several."""
    return element("h4", f"run {content.name}") if len(contents) > 1 else None
