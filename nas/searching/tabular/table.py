"""A table of trainings: every mechanism of a space, with several seeds, and a report per epoch.

A table is a gzipped JSON file. It contains the texts of the space, its policy (path rules) and the
task, the command and versions that made it, the mechanisms in normal form, and the trainings.
Built-in tables lie in the folder of this module.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nas.common.config import describe, near, parse_yaml
from nas.common.errors import TableError
from nas.common.reading import open_regular
from nas.costs import CostContext, costs_of
from nas.evaluation.trial import Budget, Evaluation
from nas.genome import Genome
from nas.store import Document
from nas.store.files import write_whole
from nas.tasks import parse_task
from nas.training import Report

VERSION: Final = 1
# Errors of functions that read a damaged file.
_DAMAGE: Final = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, RecursionError, TypeError),
    *(ValueError, zlib.error),
)
SUFFIX: Final = ".json.gz"
FOLDER: Final = Path(__file__).parent
REPORT_FIELDS: Final = ("train_loss", "core_seconds")  # numbers of a report besides its metrics
MAX_BYTES: Final = 2**26  # size of an uncompressed table
DIGITS: Final = 6  # significant digits of a stored number


@dataclass(frozen=True)
class Origin:
    """The origin of a table.

    Attributes:
        command: the command that creates the table.
        date: date of the last training, as year-month-day.
        hardware: names of the processors and GPUs that trained.
        versions: versions of libraries, by name.
    """

    command: str
    date: str
    hardware: tuple[str, ...]
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Table:
    """Trainings of mechanisms under one task.

    Attributes:
        name: name of the table.
        about: one sentence on the table.
        space, policy, task: copies of the texts at the time of the trainings; a policy holds the
            path rules of the space. The task's fingerprint also covers the content of the task's
            data.
        mechanisms: genomes in normal form, by the digest at the task's sizes.
        trainings: trainings of each mechanism, by the same digest, in the order of the seeds.
        calibration: unit times of the machine that trained, from which the cost ``time_ms`` is
            predicted; empty if the space has no such cost.
    """

    name: str
    about: str
    space: Document
    policy: Document
    task: Document
    origin: Origin
    mechanisms: Mapping[str, Genome]
    trainings: Mapping[str, Sequence[Evaluation]]
    calibration: Mapping[str, Any] = field(default_factory=dict)

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
        return CostContext(model.sizes, model.qkv_bias, model.is_causal, self.calibration)

    def key_of(self, genome: Genome) -> str:
        """Return the key of a mechanism in this table, that is, its digest at the table's sizes.

        Raises:
            GenomeError: the mechanism cannot be built at these sizes.
            TableError: the mechanism is not in the table.
        """
        key = self.setting.resolve(genome).key
        if key not in self.mechanisms:
            raise TableError(
                f"table {self.name} holds no mechanism {key}; expected one of its space "
                f"{self.space.name}."
            )
        return key

    def costs(self, key: str, names: Iterable[str]) -> dict[str, float]:
        """Return costs of a mechanism at the sizes of the task, by name."""
        return costs_of(self.setting.resolve(self.mechanisms[key]), self.setting, names)

    def scores(self, name: str, epoch: int | None = None) -> NDArray[np.float64]:
        """Return the value of a metric in each training, an array of shape (mechanisms, repeats).

        The value is NaN if the training failed.

        Args:
            name: name of a metric, or one of "train_loss" and "core_seconds".
            epoch: number of the epoch, from 1; None for the last epoch.
        """
        rows = [self.trainings[key][: self.repeats] for key in self.mechanisms]
        return np.array([[_number(training, name, epoch) for training in row] for row in rows])

    def write(self, path: Path) -> None:
        """Write the table to a file, atomically.

        Raises:
            TableError: the folder cannot be written.
        """
        text = json.dumps(_to_dict(self), separators=(",", ":"), allow_nan=False)
        try:
            write_whole(path, gzip.compress(text.encode(), mtime=0))
        except OSError as error:
            raise TableError(f"{path}: cannot be written ({error.strerror}).") from None


def tables() -> list[str]:
    """Return the names of the built-in tables."""
    return sorted(path.name.removesuffix(SUFFIX) for path in FOLDER.glob(f"*{SUFFIX}"))


def load_table(name_or_path: str) -> Table:
    """Return the built-in table of a name, or the table in a file.

    Raises:
        TableError: there is no such table, or the file contains no table.
    """
    path = Path(name_or_path)
    if not path.suffix:
        path = FOLDER / f"{name_or_path}{SUFFIX}"
        if str(name_or_path) not in tables():
            raise TableError(
                f"there is no table {name_or_path!r}{near(name_or_path, tables())}; expected one "
                f"of {', '.join(tables())}, or a file."
            )
    try:
        with open_regular(path) as packed, gzip.open(packed) as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES} bytes")
        return _from_dict(json.loads(content))
    except OSError as error:
        raise TableError(f"{path}: cannot be read ({error.strerror or error}).") from None
    except _DAMAGE as error:
        raise TableError(
            f"{path}: is no table of this version ({type(error).__name__}: {error})."
        ) from None


def _number(evaluation: Evaluation, name: str, epoch: int | None) -> float:
    if not evaluation.is_ok:
        return float("nan")
    report = evaluation.reports[-1 if epoch is None else epoch - 1]
    return float(getattr(report, name)) if name in REPORT_FIELDS else report.metrics[name]


def _to_dict(table: Table) -> dict[str, Any]:
    return {
        "version": VERSION,
        "name": table.name,
        "about": table.about,
        "space": asdict(table.space),
        "policy": asdict(table.policy),
        "task": asdict(table.task),
        "origin": asdict(table.origin),
        "calibration": table.calibration,
        "metrics": table.metrics,
        "mechanisms": [genome.to_dict() for genome in table.mechanisms.values()],
        "keys": list(table.mechanisms),
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
    budget = [evaluation.budget.epochs, evaluation.budget.examples, evaluation.budget.precision]
    return [
        evaluation.seed,
        evaluation.status,
        evaluation.reason,
        budget,
        evaluation.hardware,
        reports,
    ]


def _from_dict(data: Mapping[str, Any]) -> Table:
    if data["version"] != VERSION:
        raise ValueError(f"version {data['version']}, expected {VERSION}")
    metrics, keys = _words(data["metrics"]), _words(data["keys"])
    origin = data["origin"]
    return Table(
        name=str(data["name"]),
        about=str(data["about"]),
        space=_document(data["space"]),
        policy=_document(data["policy"]),
        task=_document(data["task"]),
        origin=Origin(
            command=str(origin["command"]),
            date=str(origin["date"]),
            hardware=_words(origin["hardware"]),
            versions={str(name): str(version) for name, version in origin["versions"].items()},
        ),
        mechanisms={
            key: Genome.from_dict(genome)
            for key, genome in zip(keys, data["mechanisms"], strict=True)
        },
        trainings={
            key: tuple(_training(row, metrics) for row in rows)
            for key, rows in zip(keys, data["trainings"], strict=True)
        },
        calibration=dict(data.get("calibration", {})),
    )


def _document(data: Mapping[str, Any]) -> Document:
    return Document(**{name: str(value) for name, value in data.items()})


def _words(value: Any) -> tuple[str, ...]:
    """Return a list of strings as a tuple; raise ValueError if it is no list or has duplicates."""
    words = tuple(str(word) for word in value)
    if not isinstance(value, list) or len({*words}) < len(words):
        raise ValueError(f"{describe(value)}, expected a list of different words")
    return words


def _training(row: Sequence[Any], metrics: Sequence[str]) -> Evaluation:
    seed, status, reason, budget, hardware, epoch_rows = row
    numbers = [[float(number) for number in report] for report in epoch_rows]
    reports = tuple(
        Report(epoch, loss, dict(zip(metrics, values, strict=True)), seconds)
        for epoch, (loss, seconds, *values) in enumerate(numbers, start=1)
    )
    epochs, examples, precision = budget
    seconds = reports[-1].core_seconds if reports else 0.0
    return Evaluation(
        status=status,
        reason=reason,
        metrics=reports[-1].metrics if status == "ok" else {},
        reports=reports,
        seed=int(seed),
        budget=Budget(int(epochs), int(examples), str(precision)),
        wall_seconds=seconds,
        core_seconds=seconds,
        peak_memory_bytes=0,
        worker="table",
        hardware=str(hardware),
    )


def _short(number: float) -> float | str:
    return float(f"{number:.{DIGITS}g}") if np.isfinite(number) else str(number)
