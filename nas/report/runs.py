"""The list of runs, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from nas.report.table import TextColumn
from nas.report.units import quantity

if TYPE_CHECKING:
    from nas.store import RunSummary


def runs_answer(runs: Sequence[RunSummary], problems: Sequence[Exception]) -> dict[str, Any]:
    """The JSON answer of ``nas runs``: runs, last active last, and errors of unreadable ones."""
    return {"runs": [_answer(run) for run in runs], "problems": [str(p) for p in problems]}


def runs_columns(runs: Sequence[RunSummary]) -> list[TextColumn]:
    """The columns of the table of runs."""
    best = ["" if r.best is None else quantity(r.best, r.objective.unit) for r in runs]
    active = [f"{r.active.astimezone():%Y-%m-%d %H:%M}" for r in runs]
    volumes = ["" if r.hypervolume is None else f"{r.hypervolume:.4f}" for r in runs]
    return [
        TextColumn("run", [r.name for r in runs], style="cyan"),
        TextColumn("status", [r.status for r in runs]),
        TextColumn("space", [r.space for r in runs], rank=3),
        TextColumn("task", [r.task for r in runs], rank=4),
        TextColumn("algorithm", [r.algorithm for r in runs], rank=4),
        TextColumn("generations", [f"{r.generations_done}/{r.generations}" for r in runs], "right"),
        TextColumn("evaluated", [str(r.counts.evaluated) for r in runs], "right", rank=1),
        TextColumn("failed", [str(r.counts.failed) for r in runs], "right", rank=2),
        TextColumn("best", best, "right", rank=1),
        TextColumn("hypervolume", volumes, "right", rank=1),
        TextColumn("last active", active, rank=2),
    ]


def _answer(run: RunSummary) -> dict[str, Any]:
    plain = asdict(run) | {
        "folder": str(run.folder),
        "started": run.started.isoformat(),
        "active": run.active.isoformat(),
        "objective": run.objective.name,
    }
    return {"run": plain.pop("name"), **plain}
