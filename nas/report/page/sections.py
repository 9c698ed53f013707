"""The page's sections as HTML: all of it can be read without a script.

What a script makes of a place is said by its id: ``front``, ``table``, ``mechanism``, ``timeline``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nas.report.facts import STANDARD, task_and_data
from nas.report.page.content import shares, spread
from nas.report.page.figures import course_figure, front_figure, holds_figure, run_class
from nas.report.page.markup import Markup, element, join
from nas.report.page.operators import operators_of
from nas.report.page.verdict import verdict_of
from nas.report.text import last_line, plural
from nas.report.trials import points
from nas.report.units import amount, duration, header

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nas.report.page.content import Content

    Cell = str | Markup

MOST_FAILURES: Final = 20
SECTIONS: Final = {
    "verdict": "Verdict",
    "front": "Front",
    "table": "Mechanisms",
    "mechanism": "One mechanism",
    "confirmed": "What holds",
    "course": "The search",
    "repeat": "How to repeat it",
}


def body(contents: Sequence[Content]) -> Markup:
    """All sections."""
    return join(
        _bar(contents),
        element(
            "main",
            element("section", *map(_verdict, contents, range(len(contents))), id="verdict"),
            _front(contents),
            _table(contents),
            element("section", id="mechanism", class_="live"),
            _confirmed(contents),
            _course(contents),
            element("section", _title("repeat"), *map(_provenance, contents), id="repeat"),
        ),
        element("div", id="tip", class_="tip", role="status", aria_live="polite", hidden=""),
    )


def _bar(contents: Sequence[Content]) -> Markup:
    links = [element("a", words, href=f"#{name}") for name, words in SECTIONS.items()]
    runs = [
        element(
            "button",
            element("span", class_="swatch"),
            content.name,
            type="button",
            class_=run_class(index),
            data_toggle=content.name,
            aria_pressed="true",
        )
        for index, content in enumerate(contents)
    ]
    own = element("div", *runs, class_="runs live") if len(contents) > 1 else None
    return element("header", element("nav", *links, aria_label="Sections"), own, class_="top")


def _title(name: str, more: str = "") -> Markup:
    return element("h2", SECTIONS[name], element("small", more) if more else None)


def _verdict(content: Content, index: int) -> Markup:
    found, setup = verdict_of(content), content.setup
    done = f"{len(content.generations)} of {plural(setup.generations, 'generation')}"
    about = [
        f"run {content.name}",
        f"space {setup.space.name}",
        f"task {task_and_data(setup)}",
        f"seed {setup.seed}",
        setup.algorithm,
        f"{content.status}, {done}",
        f"{content.started:%Y-%m-%d}",
    ]
    figures = [
        element("div", element("b", value), element("span", label), class_=f"figure {kind}")
        for value, label, kind in found.figures
    ]
    return element(
        "article",
        element("p", " · ".join(about), class_="about"),
        element("h1", found.headline),
        element("div", *figures, class_="figures"),
        element("div", *(element("p", sentence) for sentence in found.sentences), class_="words"),
        class_=f"verdict {run_class(index)}",
    )


def _front(contents: Sequence[Content]) -> Markup:
    kinds = {
        "disc": "estimate ± standard error, in the front",
        "diamond": "named mechanism",
        "square": "mean with fresh seeds",
        "ring": "score of the search",
        "cloud": "every other mechanism",
    }
    legend = [
        element("span", element("i", class_=f"key {kind}"), words) for kind, words in kinds.items()
    ]
    return element(
        "section",
        _title("front"),
        element("div", id="axes", class_="controls live"),
        element("div", element("div", front_figure(contents), class_="static"), id="chart"),
        element("p", *legend, class_="legend"),
        id="front",
    )


def _table(contents: Sequence[Content]) -> Markup:
    """The fronts, for those without a script and for paper; a script shows everything."""
    objectives = contents[0].setup.objectives
    heads = [*(["run"] if len(contents) > 1 else []), "id"]
    for objective in objectives:
        heads.append(header(objective.name, objective.unit))
        heads += ["score", "fresh"] if objective.is_metric else [f"× {STANDARD}"]
    rows = [row for content in contents for row in _members(content, objectives, len(contents))]
    grid = table([*heads, "seeds", "P", "formula"], rows)
    return element(
        "section",
        _title("table"),
        element("div", id="filter", class_="controls live"),
        element("div", id="rows", class_="live"),
        element("div", grid, class_="static scroll"),
        id="table",
    )


def _members(content: Content, objectives: Sequence[object], runs: int) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for member in content.members:
        key, cells = str(member.proposal.key), [*([content.name] if runs > 1 else [])]
        cells.append(content.called(key))
        ratio = shares(content, key)
        for o in content.setup.objectives:
            cells.append(amount(member.objectives[o.name], o.unit, member.errors.get(o.name)))
            if o.is_metric:
                fresh = spread(content.values("fresh", key)) if o is content.metric else None
                cells.append(amount(member.scores[o.name], o.unit))
                cells.append(amount(fresh[0], o.unit, fresh[1]) if fresh else "")
            else:
                cells.append(f"{ratio[o.name]:.2f}" if o.name in ratio else "")
        p = "" if member.p is None else f"{member.p:.2f}"
        rows.append([*cells, str(member.trainings), p, member.proposal.formula])
    return rows


def _confirmed(contents: Sequence[Content]) -> Markup:
    figures = [
        element("div", _run_title(content, contents), figure, class_="scroll wide")
        for content in contents
        if (figure := holds_figure(content))
    ]
    none = "Nothing was trained with fresh seeds yet: `nas confirm RUN` does that."
    said = (
        "Each mechanism's three numbers, kept apart: the search's score (ring), what the search "
        "believes (disc), and the mean over seeds that it never saw (square). Bars: one standard "
        "error. Leads are between trainings that share their seed."
    )
    about = element("p", said if figures else none, class_="note")
    return element("section", _title("confirmed"), about, *figures, id="confirmed")


def _course(contents: Sequence[Content]) -> Markup:
    figures = [course_figure(contents, over_time=over_time) for over_time in (False, True)]
    parts = [element("div", *figures, class_="pair")]
    parts.append(element("div", id="timeline", class_="live"))
    for content in contents:
        parts.append(_operators(content, contents))
        parts.append(_failures(content))
    return element("section", _title("course"), *parts, id="course")


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
    heads = ("operator", "trained", "failed", "ever in a front", "in the last", "over parent", "core min")
    note = (
        f"Over parent: mean difference in {first.name} to the better parent, by estimates; "
        "positive is better."
    )
    return join(
        element("h3", "Which operators paid"),
        _run_title(content, contents),
        element("div", table(heads, rows), class_="scroll"),
        element("p", note, class_="note"),
    )


def _share(part: int, whole: int) -> Markup:
    share = element("meter", value=f"{part / whole:.3f}", min="0", max="1", aria_hidden="true")
    return join(f"{part} ", share)


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
    return join(element("h3", "Failures"), element("div", grid, class_="scroll"))


def _examples(content: Content, keys: Sequence[str], texts: dict[str, str]) -> Iterable[Markup]:
    for key in keys[:MOST_FAILURES]:
        digest = content.trained[key].digest
        link = element(
            "a",
            content.called(key),
            href=f"#run={content.name}&id={digest}",
            data_run=content.name,
            data_id=digest,
        )
        yield element("div", link, f" {texts[key]}")
    if len(keys) > MOST_FAILURES:
        yield element("div", f"and {len(keys) - MOST_FAILURES:,} more")


def _provenance(content: Content) -> Markup:
    setup = content.setup
    facts = {
        "run seed": str(setup.seed),
        "algorithm": f"{setup.algorithm}, {setup.population} a generation, "
        f"{plural(setup.repeats, 'training')} each at first",
        "hardware": ", ".join(dict.fromkeys(row["hardware"] for row in content.trials)) or "none",
        "hypervolume": f"{content.hypervolume:.4f}, reference "
        + ", ".join(f"{o.name} {amount(o.reference, o.unit)}" for o in setup.objectives),
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
        "article", element("h3", f"Run {content.name}"), *sessions, element("dl", *terms), *documents
    )


def _session_line(past: object) -> str:
    found = getattr(past, "session")  # noqa: B009
    started, ended = getattr(past, "started"), getattr(past, "ended")  # noqa: B009
    took = duration((ended - started).total_seconds()) if ended else "did not end by itself"
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    return (
        f"{started:%Y-%m-%d %H:%M} UTC, {took}; {plural(found.workers, 'worker')} on "
        f"{found.hardware}; {versions}"
    )


def _run_title(content: Content, contents: Sequence[Content]) -> Markup | None:
    return element("h4", f"run {content.name}") if len(contents) > 1 else None


def table(heads: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Markup:
    """A table; the last column is text, the first too, what is between them numbers."""
    head = element("tr", *(element("th", name, scope="col") for name in heads))
    lines = (element("tr", *(element("td", cell) for cell in row)) for row in rows)
    return element("table", element("thead", head), element("tbody", *lines))
