"""Under other tasks: what ``nas benchmark`` found of a run's mechanisms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nas.common.differences import LEVEL
from nas.report.benchmark import SENSE
from nas.report.page.markup import Markup, element, join, link
from nas.report.units import amount, header
from nas.store.answers import damaged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nas.report.page.content import Content


def elsewhere(contents: Sequence[Content]) -> Markup:
    """All benchmarks of all runs; nothing where there is none."""
    found = []
    for content in contents:
        for path, answer in content.benchmarked:
            try:
                found.append(_benchmark(content, answer))
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                raise damaged(path, "benchmark") from error
    return join(*found)


def _benchmark(content: Content, answer: Mapping[str, Any]) -> Markup:
    tasks, rows = answer["tasks"], answer["mechanisms"]
    heads = [f"{task}: {header(m['metric'], m['unit'])}" for task, m in tasks.items()]
    titles = [SENSE[m["direction"]] for m in tasks.values()]
    head = [
        element("th", words, scope="col", title=title)
        for words, title in zip(["mechanism", *heads], [None, *titles], strict=True)
    ]
    lines = [
        element(
            "tr",
            element("td", _named(content, row)),
            *(
                element("td", *_cell(row["tasks"].get(task), row["absent"].get(task), m["unit"]))
                for task, m in tasks.items()
            ),
        )
        for row in rows
    ]
    against, seeds = answer["against"], answer["seeds"]
    note = (
        f"Means of {seeds} seeds ± standard error. Better or worse than {against}: pairs of "
        f"trainings that share their seed, p below {LEVEL} after Holm's correction."
    )
    grid = element("table", element("thead", element("tr", *head)), element("tbody", *lines))
    return element(
        "div",
        element("h3", "Under other tasks"),
        element("div", grid, class_="scroll"),
        element("p", note, class_="note"),
        class_="benchmark",
        data_of=content.name,
        data_about=" ".join(row["id"] for row in rows),
    )


def _named(content: Content, row: Mapping[str, Any]) -> Markup:
    known = content.by_digest.get(row["id"])
    if known is None:
        return element("span", row["source"])
    called = content.called(known.key) if known.key in content.trained else row["source"]
    return link(called, content.name, row["id"])


def _cell(cell: Mapping[str, Any] | None, absent: str | None, unit: str) -> list[Markup | str]:
    if cell is None or cell["mean"] is None:
        return [element("span", "–", title=absent or "every training failed")]
    shown = amount(cell["mean"], unit, cell["error"])
    verdict = cell["verdict"]
    return [element("span", shown, class_=f"judged {verdict}" if verdict else None)]
