"""The page's sections as HTML: all of it can be read without a script.

What a script makes of a place is said by its id: ``front``, ``table``, ``mechanism``, ``timeline``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from nas.report.facts import STANDARD, task_and_data
from nas.report.page.content import shares, spread
from nas.report.page.course import course, provenance, run_title
from nas.report.page.elsewhere import elsewhere
from nas.report.page.figures import front_figure, holds_figure, run_class
from nas.report.page.markup import Markup, element, join, table
from nas.report.page.verdict import verdict_of
from nas.report.page.why import why
from nas.report.text import plural
from nas.report.units import amount, header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nas.common.objectives import Objective
    from nas.report.page.content import Content
    from nas.report.page.markup import Cell

_NUMBER: Final = re.compile(r"[\d.]+( ± [\d.]+)?( %| points| ×)|[\d.]+ ± [\d.]+")
SECTIONS: Final = {
    "verdict": "Verdict",
    "front": "Front",
    "table": "Mechanisms",
    "mechanism": "One mechanism",
    "confirmed": "What holds",
    "why": "Why it works",
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
            element("section", _title("why"), why(contents), id="why"),
            element("section", _title("course"), course(contents), id="course"),
            element("section", _title("repeat"), *map(provenance, contents), id="repeat"),
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


def _title(name: str) -> Markup:
    return element("h2", SECTIONS[name])


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
        element(
            "div", element("b", _unbroken(value)), element("span", label), class_=f"figure {kind}"
        )
        for value, label, kind in found.figures
    ]
    return element(
        "article",
        element("p", " · ".join(about), class_="about"),
        element("h1", _unbroken(found.headline)),
        element("div", *figures, class_="figures"),
        element(
            "div", *(element("p", _unbroken(said)) for said in found.sentences), class_="words"
        ),
        class_=f"verdict {run_class(index)}",
    )


def _unbroken(words: str) -> str:
    """A number stays on one line with its error and its unit."""
    return _NUMBER.sub(lambda found: found[0].replace(" ", "\u00a0"), words)


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


def _members(content: Content, objectives: Sequence[Objective], runs: int) -> list[list[Cell]]:
    """The front as rows with cells for these objectives; a run may lack one of another's."""
    own = {o.name: o for o in content.setup.objectives}
    rows: list[list[Cell]] = []
    for member in content.members:
        key, cells = str(member.proposal.key), [*([content.name] if runs > 1 else [])]
        cells.append(content.called(key))
        ratio = shares(content, key)
        for asked in objectives:
            o = own.get(asked.name)
            if o is None:
                cells += [""] * (3 if asked.is_metric else 2)
                continue
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
        element("div", run_title(content, contents), figure, class_="scroll wide")
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
    return element(
        "section", _title("confirmed"), about, *figures, elsewhere(contents), id="confirmed"
    )
