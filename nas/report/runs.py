"""The columns of the list of runs, which ``nas runs`` prints."""

from __future__ import annotations

from typing import Final

from nas.report.table import Column
from nas.report.units import quantity
from nas.store import RunSummary


def _field(name: str, title: str | None = None, rank: int = 0) -> Column[RunSummary]:
    return Column(name, title, lambda run: getattr(run, name), is_number=False, rank=rank)


COLUMNS: Final[list[Column[RunSummary]]] = [
    Column("run", "run", lambda run: run.name, is_number=False, style="cyan"),
    _field("status", "status"),
    _field("space", "space", rank=3),
    _field("task", "task", rank=4),
    _field("algorithm", "algorithm", rank=4),
    _field("seed"),
    Column(
        "generations_done",
        "generations",
        lambda run: run.generations_done,
        text=lambda run: f"{run.generations_done}/{run.generations}",
    ),
    _field("generations"),
    Column("evaluated", "evaluated", lambda run: run.counts.evaluated, rank=1),
    Column("stopped", None, lambda run: run.counts.stopped),
    Column("failed", "failed", lambda run: run.counts.failed, rank=2),
    Column("objective", None, lambda run: run.objective.name),
    Column(
        "best",
        "best",
        lambda run: run.best,
        text=lambda run: "" if run.best is None else quantity(run.best, run.objective.unit),
        rank=1,
    ),
    Column(
        "hypervolume",
        "hypervolume",
        lambda run: run.hypervolume,
        text=lambda run: "" if run.hypervolume is None else f"{run.hypervolume:.4f}",
        rank=1,
    ),
    Column("started", None, lambda run: run.started.isoformat()),
    Column(
        "active",
        "last active",
        lambda run: run.active.isoformat(),
        text=lambda run: f"{run.active.astimezone():%Y-%m-%d %H:%M}",
        is_number=False,
        rank=2,
    ),
    Column("folder", None, lambda run: str(run.folder)),
    _field("note"),
]
