"""Data of the page's sections for recorded results of ``nas explain`` and ``nas benchmark``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from nas.common.text import plural
from nas.report.benchmark import SENSE
from nas.report.explanation import ROWS, TITLES, signed
from nas.report.page.rendering import gain
from nas.report.page.scale import Scale
from nas.report.run_view import RunView, damaged
from nas.report.trials import points
from nas.report.units import FRACTION, amount, header, quantity

if TYPE_CHECKING:
    Answer = Mapping[str, Any]

WIDTH, HEIGHT = 160.0, 24.0
ORDER: Final = ("needed", "harmful", "harmless", "unresolved")


def explanations(views: Sequence[RunView]) -> list[dict[str, Any]]:
    """All explanations of all runs.

    Raises:
        RunError: a recorded answer cannot be shown.
    """
    return [_read(_explanation, view, answer) for view in views for answer in view.explained]


def benchmarks(views: Sequence[RunView]) -> list[dict[str, Any]]:
    """All benchmarks of all runs.

    Raises:
        RunError: a recorded answer cannot be shown.
    """
    return [_read(_benchmark, view, answer) for view in views for answer in view.benchmarked]


def _read(
    make: Callable[[RunView, Answer], dict[str, Any]], view: RunView, answer: Answer
) -> dict[str, Any]:
    try:
        return make(view, answer)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise damaged(view, "explain" if make is _explanation else "benchmark") from error


def _explanation(view: RunView, answer: Answer) -> dict[str, Any]:
    digest, metric = answer["id"], answer["metric"]
    unit, words = metric["unit"], metric["name"].replace("_", " ")
    candidate = view.by_digest.get(digest)
    name = view.called(candidate.key) if candidate and candidate.key in view.trained else digest[:8]
    reached = "it could not be trained"
    if answer["mean"] is not None:
        reached = f"{words} {quantity(answer['mean'], unit, answer['error'])}"
    rows = [row for part in TITLES for row in answer[part]]
    ends = [d[end] for row in rows if (d := row["difference"]) for end in ("low", "high")]
    x = Scale.over([*ends, 0.0], 6, WIDTH - 6)
    tables = [
        (title.format(source=name), *_table(part, answer))
        for part, title in TITLES.items()
        if answer[part]
    ]
    return {
        "run": view.name,
        "digest": digest,
        "name": name,
        "about": f"{reached} under {answer['task']}, {plural(len(answer['values']), 'fresh seed')}",
        "summary": _summary(answer["edits"], unit),
        "tables": tables,
        "x": x,
        "width": WIDTH,
        "height": HEIGHT,
        "band": [min(max(x(sign * answer["margin"]), 0.0), WIDTH) for sign in (-1, 1)],
        "has_path": bool(answer["has_path"]),
        "what": f"points of {words}" if unit == FRACTION else words,
        "margin": points(answer["margin"], None, unit).lstrip("+"),
        "seeds": [str(seeds) for seeds in answer["seeds"]],
    }


def _summary(edits: Sequence[Answer], unit: str) -> str:
    """The number of edits with each verdict, and the part whose loss costs most."""
    counts = Counter(row["verdict"] for row in edits)
    verdicts = ", ".join(f"{counts[word]} {word}" for word in ORDER if counts[word])
    summary = f"Of {plural(len(edits), 'part')}: {verdicts}."
    needed = [row for row in edits if row["verdict"] == "needed"]
    if not needed:
        return summary
    most = max(needed, key=lambda row: abs(row["difference"]["mean"]))
    return f"{summary} The largest loss: {most['words']}, {_gain(most, unit)}."


def _table(part: str, answer: Answer) -> tuple[list[str], list[dict[str, Any]]]:
    """Headers and rows of a table; edits are sorted by their effect, largest loss first."""
    rows, unit = answer[part], answer["metric"]["unit"]
    if part == "edits":
        sign = 1 if answer["metric"]["direction"] == "max" else -1
        rows = sorted(
            rows, key=lambda row: sign * row["difference"]["mean"] if row["difference"] else 0.0
        )
    costs = [name for name in rows[0]["added_costs"] if any(r["added_costs"][name] for r in rows)]
    heads = [ROWS[part], "", "difference", "verdict", *map(header, costs), "formula"]
    return heads, [_line(row, costs, unit) for row in rows]


def _line(row: Answer, costs: Sequence[str], unit: str) -> dict[str, Any]:
    failed = "; ".join(f"{count} failed, {reason}" for reason, count in row["failed"].items())
    difference = row["difference"]
    ends = difference and [gain(difference[end], None, unit) for end in ("low", "high")]
    numbers = difference and {name: float(difference[name]) for name in ("mean", "low", "high")}
    return {
        "words": f"{row['words']} ({failed})" if failed else str(row["words"]),
        "difference": numbers,
        "interval": ends and " to ".join(ends),
        "gain": _gain(row, unit),
        "verdict": str(row["verdict"]),
        "costs": [signed(row["added_costs"][cost]).replace("-", "−") for cost in costs],
        "formula": str(row["formula"]),
    }


def _gain(row: Answer, unit: str) -> str:
    difference = row["difference"]
    return gain(difference["mean"], difference["error"], unit) if difference else "–"


def _benchmark(view: RunView, answer: Answer) -> dict[str, Any]:
    tasks = answer["tasks"]
    heads = [
        (f"{task}: {header(about['metric'], about['unit'])}", SENSE[about["direction"]])
        for task, about in tasks.items()
    ]
    rows = []
    for row in answer["mechanisms"]:
        candidate = view.by_digest.get(row["id"])
        name = (
            view.called(candidate.key)
            if candidate and candidate.key in view.trained
            else row["source"]
        )
        cells = [
            _cell(row["tasks"].get(task), row["absent"].get(task), about["unit"])
            for task, about in tasks.items()
        ]
        rows.append((name, row["id"] if candidate else "", cells))
    return {
        "run": view.name,
        "digests": [str(row["id"]) for row in answer["mechanisms"]],
        "heads": heads,
        "rows": rows,
        "against": answer["against"],
        "seeds": answer["seeds"],
    }


def _cell(cell: Answer | None, absent: str | None, unit: str) -> tuple[str, str, str]:
    """The text of a cell, its verdict, and the reason if there is no value."""
    if cell is None or cell["mean"] is None:
        return "–", "", absent or "every training failed"
    return amount(cell["mean"], unit, cell["error"]), cell["verdict"] or "", ""
