"""The list of runs, as a table and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nas.report.table import Column
from nas.report.units import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nas.store import RunSummary


def runs_answer(runs: Sequence[RunSummary], problems: Sequence[Exception]) -> dict[str, Any]:
    """The JSON answer of ``nas runs``: the runs, last active last, and what cannot be read."""
    return {"runs": [_answer(run) for run in runs], "problems": [str(p) for p in problems]}


def runs_columns(runs: Sequence[RunSummary]) -> list[Column]:
    """The table's columns, one row a run."""
    return [
        Column("run", tuple(r.name for r in runs), style="cyan"),
        Column("status", tuple(r.status for r in runs)),
        Column("space", tuple(r.space for r in runs), rank=3),
        Column("task", tuple(r.task for r in runs), rank=4),
        Column("algorithm", tuple(r.algorithm for r in runs), rank=4),
        Column(
            "generations", tuple(f"{r.generations_done}/{r.generations}" for r in runs), "right"
        ),
        Column("evaluated", tuple(str(r.counts.evaluated) for r in runs), "right", rank=1),
        Column("failed", tuple(str(r.counts.failed) for r in runs), "right", rank=2),
        Column("best %", tuple(_accuracy(r) for r in runs), "right", rank=1),
        Column("hypervolume", tuple(_volume(r) for r in runs), "right", rank=1),
        Column("last active", tuple(_local(r) for r in runs), rank=2),
    ]


def _answer(run: RunSummary) -> dict[str, Any]:
    counts = run.counts
    return {
        "run": run.name,
        "folder": str(run.folder),
        "status": run.status,
        "space": run.space,
        "task": run.task,
        "algorithm": run.algorithm,
        "seed": run.seed,
        "started": run.started.isoformat(),
        "active": run.active.isoformat(),
        "generations_done": run.generations_done,
        "generations": run.generations,
        "counts": {
            "proposed": counts.proposed,
            "evaluated": counts.evaluated,
            "replayed": counts.replayed,
            "rejected": counts.rejected,
            "failed": counts.failed,
        },
        "best_accuracy": run.best_accuracy,
        "hypervolume": run.hypervolume,
    }


def _accuracy(run: RunSummary) -> str:
    return "" if run.best_accuracy is None else percent(run.best_accuracy)


def _volume(run: RunSummary) -> str:
    return "" if run.hypervolume is None else f"{run.hypervolume:.4f}"


def _local(run: RunSummary) -> str:
    return f"{run.active.astimezone():%Y-%m-%d %H:%M}"
