"""A table of trainings: every mechanism of a space, with several seeds, and a report per epoch.

A table is a gzipped JSON file. It contains the texts of the space, its policy (path rules) and the
task, the command and versions that made it, the mechanisms in normal form, and the trainings.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nas.common.config import parse_yaml
from nas.costs import CostContext, costs_of
from nas.evaluation.trial import Budget, Evaluation
from nas.genome import Genome
from nas.space import SearchSpace
from nas.space.rules import Policy
from nas.store import Document
from nas.store.files import write_file
from nas.store.frozen import from_text
from nas.tasks import parse_task
from nas.training import Report

VERSION: Final = 1
SUFFIX: Final = ".json.gz"
FOLDER: Final = Path(__file__).parent
DIGITS: Final = 6  # significant digits of a stored number


@dataclass(frozen=True)
class Table:
    """Trainings of mechanisms under one task.

    Attributes:
        space, policy, task: the texts at the time of the trainings. The task's fingerprint also
            covers the content of the task's data.
        origin: the command that made the table, its date, hardware and versions of libraries.
        mechanisms: genomes in normal form, by their digest at the task's sizes.
        trainings: trainings of each mechanism, by the same digest, in the order of the seeds.
        times: the cost ``time_ms`` of each mechanism, predicted from unit times of the machine that
            trained, in milliseconds; empty if it is no objective of the space.
    """

    name: str
    about: str
    space: Document
    policy: Document
    task: Document
    origin: Mapping[str, Any]
    mechanisms: Mapping[str, Genome]
    trainings: Mapping[str, Sequence[Evaluation]]
    times: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def repeats(self) -> int:
        """The number of seeds that every mechanism was trained with."""
        return min((len(trainings) for trainings in self.trainings.values()), default=0)

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """The names of all measured metrics, sorted."""
        rows = self.trainings.values()
        return tuple(sorted({name for row in rows for e in row for name in e.metrics}))

    @cached_property
    def setting(self) -> CostContext:
        """The sizes and options at which costs of the mechanisms are computed."""
        model = parse_task(parse_yaml(self.task.text, self.name), f"table {self.name}").main
        return CostContext(model.sizes, model.qkv_bias, model.is_causal)

    def load_space(self) -> tuple[SearchSpace, Policy]:
        """Return the space and its policy."""
        return from_text(self.space, SearchSpace), from_text(self.policy, Policy)

    def cost(self, key: str, name: str) -> float:
        """Return a cost of a mechanism at the sizes of the task."""
        if name == "time_ms":
            return self.times[key]
        return costs_of(self.setting.resolve(self.mechanisms[key]), self.setting, [name])[name]

    def scores(self, name: str) -> NDArray[np.float64]:
        """Return a metric after the last epoch of each training, shape (mechanisms, repeats).

        The value is NaN if the training failed.

        Args:
            name: name of a metric, or "train_loss".
        """
        rows = [self.trainings[key][: self.repeats] for key in self.mechanisms]
        return np.array([[_number(training, name) for training in row] for row in rows])

    def write(self, path: Path) -> None:
        """Write the table to a file, atomically."""
        text = json.dumps(_to_dict(self), separators=(",", ":"), allow_nan=False)
        write_file(path, gzip.compress(text.encode(), mtime=0))


def load_table(name_or_path: str | Path) -> Table:
    """Return the table in a file, or the table of this folder with this name."""
    path = Path(name_or_path)
    if not path.suffix:
        path = FOLDER / f"{name_or_path}{SUFFIX}"
    return _from_dict(json.loads(gzip.decompress(path.read_bytes())))


def _number(evaluation: Evaluation, name: str) -> float:
    if not evaluation.is_ok:
        return float("nan")
    report = evaluation.reports[-1]
    return report.train_loss if name == "train_loss" else report.metrics[name]


def _to_dict(table: Table) -> dict[str, Any]:
    return {
        "version": VERSION,
        "name": table.name,
        "about": table.about,
        "space": asdict(table.space),
        "policy": asdict(table.policy),
        "task": asdict(table.task),
        "origin": table.origin,
        "metrics": table.metrics,
        "mechanisms": [genome.to_dict() for genome in table.mechanisms.values()],
        "keys": list(table.mechanisms),
        "times": list(table.times.values()),
        "trainings": [
            [_row(evaluation, table.metrics) for evaluation in table.trainings.get(key, ())]
            for key in table.mechanisms
        ],
    }


def _row(evaluation: Evaluation, metrics: Sequence[str]) -> list[Any]:
    reports = [
        [_short(n) for n in (r.train_loss, r.core_seconds, *(r.metrics[m] for m in metrics))]
        for r in evaluation.reports
    ]
    budget = list(asdict(evaluation.budget).values())
    outcome = [evaluation.seed, evaluation.status, evaluation.reason]
    return [*outcome, budget, evaluation.hardware, reports]


def _from_dict(data: Mapping[str, Any]) -> Table:
    keys, metrics = data["keys"], data["metrics"]
    return Table(
        data["name"],
        data["about"],
        *(Document(**data[name]) for name in ("space", "policy", "task")),
        origin=data["origin"],
        mechanisms=dict(zip(keys, map(Genome.from_dict, data["mechanisms"]), strict=True)),
        trainings={
            key: tuple(_training(row, metrics) for row in rows)
            for key, rows in zip(keys, data["trainings"], strict=True)
        },
        times=dict(zip(keys, data["times"], strict=bool(data["times"]))),
    )


def _training(row: Sequence[Any], metrics: Sequence[str]) -> Evaluation:
    seed, status, reason, budget, hardware, epochs = row
    numbers = [[float(number) for number in report] for report in epochs]  # some are "nan"
    reports = tuple(
        Report(epoch, loss, dict(zip(metrics, values, strict=True)), seconds)
        for epoch, (loss, seconds, *values) in enumerate(numbers, start=1)
    )
    seconds = reports[-1].core_seconds if reports else 0.0
    return Evaluation(
        status=status,
        reason=reason,
        metrics=reports[-1].metrics if status == "ok" else {},
        reports=reports,
        seed=seed,
        budget=Budget(*budget),
        wall_seconds=seconds,
        core_seconds=seconds,
        peak_memory_bytes=0,
        worker="table",
        hardware=hardware,
    )


def _short(number: float) -> float | str:
    return float(f"{number:.{DIGITS}g}") if np.isfinite(number) else str(number)
