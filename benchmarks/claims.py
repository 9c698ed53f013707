"""Compare claims of publications with trainings here: ``benchmarks/claims.yaml``.

Each claim compares two mechanisms under a short task, in trainings that share their seeds. The
interval of the mean difference (95 %, Student's t) decides:

- *replicates*: a claim of being better if the interval lies above zero; a claim of being no worse
  if it lies above minus the margin;
- *fails*: the first if the interval lies below the margin, so that any gain is negligible; the
  second if it lies below zero and reaches beyond minus the margin;
- *undecided*: otherwise.

    python -m benchmarks claims                                     the recorded trainings
    python -m benchmarks claims --data cifar10 --text TEXT --record FILE   train again

``FILE`` stores finished trainings, so that an interrupted command continues.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypedDict

import nas
from benchmarks.figures import Figure
from nas.common.config import parse_yaml
from nas.common.differences import interval, mean_and_error
from nas.report.table import TextColumn, table_lines

Outcome: TypeAlias = Literal["replicates", "fails", "undecided"]
Scores: TypeAlias = dict[str, dict[str, list[float]]]  # by task and mechanism, in order of seeds

FOLDER: Final = Path(__file__).parent
CLAIMS: Final = FOLDER / "claims.yaml"
RECORDED: Final = FOLDER / "claims.json"
FEWER: Final = ("bytes",)  # tasks in which a lower score is better


class Claim(TypedDict):
    """An entry of the file of claims."""

    source: str
    says: str
    mechanism: str
    than: str
    task: str
    expects: Literal["better", "level"]


def claims(options: argparse.Namespace) -> list[Figure]:
    """Print the table of claims; return how many replicate, fail and are undecided."""
    if options.record is not None:
        trained = _train(options)
        RECORDED.write_text(json.dumps(trained, indent=1, sort_keys=True) + "\n")
    listed, margins = load_claims()
    scores: Scores = json.loads(RECORDED.read_text())
    rows = [(claim, *judged(claim, scores, margins)) for claim in listed]
    print("\n".join(line.plain.rstrip() for line in table_lines(columns(rows))))
    found = [outcome for _, outcome, _ in rows]
    return [
        Figure(f"claims: {outcome}", found.count(outcome), "claims", 0, len(rows))
        for outcome in ("replicates", "fails", "undecided")
    ]


def load_claims() -> tuple[list[Claim], dict[str, float]]:
    """Return the claims of the file, and the margin of each task."""
    content = parse_yaml(CLAIMS.read_text(), CLAIMS.name)
    return content["claims"], content["margins"]


def judged(
    claim: Claim, scores: Scores, margins: Mapping[str, float]
) -> tuple[Outcome, Sequence[float]]:
    """Return the outcome of a claim, and the gains of its pairs; a positive gain is better."""
    task = scores[claim["task"]]
    pairs = zip(task[claim["mechanism"]], task[claim["than"]], strict=True)
    sign = -1 if claim["task"] in FEWER else 1
    gains = [sign * (score - other) for score, other in pairs]
    low, high = interval(gains)
    return outcome_of(claim["expects"], low, high, margins[claim["task"]]), gains


def outcome_of(expects: str, low: float, high: float, margin: float) -> Outcome:
    """Return what an interval of a gain says of a claim; see the module."""
    if low > (0 if expects == "better" else -margin):
        return "replicates"
    return "fails" if high < (margin if expects == "better" else 0) else "undecided"


def columns(rows: Sequence[tuple[Claim, Outcome, Sequence[float]]]) -> list[TextColumn]:
    """Return the columns of the printed table."""
    cells = []
    for claim, outcome, gains in rows:
        factor, digits = (1, 3) if claim["task"] in FEWER else (100, 1)
        mean, error = mean_and_error(gains)
        low, high = interval(gains)
        bounds = f"[{factor * low:+.{digits}f}, {factor * high:+.{digits}f}]"
        assert error is not None
        cells.append(
            (
                claim["source"],
                claim["says"],
                f"{_name(claim['mechanism'])} {claim['expects']} {_name(claim['than'])}",
                claim["task"],
                f"{factor * mean:+.{digits}f} {bounds}",
                outcome,
            )
        )
    headers = ("source", "claim", "comparison", "task", "gain [95 %]", "outcome")
    parts = zip(headers, zip(*cells, strict=True), strict=True)
    return [TextColumn(header, list(column)) for header, column in parts]


def _name(source: str) -> str:
    return Path(source).stem if source.endswith(".json") else source


def _train(options: argparse.Namespace) -> Scores:
    data = {"bytes": f"file:{options.text}", "vit-cifar10": options.data}
    found: Scores = {}
    listed, margins = load_claims()
    for task in margins:
        own = [claim for claim in listed if claim["task"] == task]
        sources = dict.fromkeys(name for c in own for name in (c["mechanism"], c["than"]))
        result = nas.benchmark(
            [name for name in sources if name != "mha"],
            tasks=[task],
            data={task: data[task]} if task in data else None,
            seeds=options.seeds,
            record=options.record,
            workers=options.workers,
        )
        rows = {row.source: row.tasks[task].values for row in result.mechanisms}
        found[task] = {name: [round(v, 6) for v in rows[name] if v is not None] for name in sources}
    return found
