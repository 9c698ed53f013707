"""A table of trainings: every mechanism of a space, several seeds each, a report an epoch.

One gzipped JSON file says all: space, policy and task as texts with fingerprints, who trained with
what, the mechanisms in normal form, and the trainings. Built-in tables lie beside this module.
"""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from nas.common.config import describe, near, parse_yaml
from nas.common.errors import TableError
from nas.costs import CostContext, costs_of
from nas.evaluation.trial import Budget, Evaluation
from nas.genome import Genome
from nas.store import Document
from nas.store.files import write_whole
from nas.tasks import parse_task
from nas.training.report import Report

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

VERSION: Final = 1
SUFFIX: Final = ".json.gz"
FOLDER: Final = Path(__file__).parent
OWN: Final = ("train_loss", "core_seconds")  # numbers of each report beside its metrics
MAX_BYTES: Final = 2**26  # of a table, unpacked
DIGITS: Final = 6  # significant digits that are kept of a measured number


@dataclass(frozen=True)
class Origin:
    """How a table came to be.

    Attributes:
        command: that made it, or makes it again.
        date: of the last training, as year-month-day.
        hardware: what trained, each kind once.
        versions: by name of a library.
    """

    command: str
    date: str
    hardware: tuple[str, ...]
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Table:
    """Trainings of mechanisms under one task.

    Attributes:
        space, policy, task: as they were; the task's fingerprint covers its data.
        mechanisms: in normal form, by the digest resolved at the task's sizes.
        trainings: by key, one a seed, in the order of the seeds.
    """

    name: str
    about: str
    space: Document
    policy: Document
    task: Document
    origin: Origin
    mechanisms: Mapping[str, Genome]
    trainings: Mapping[str, Sequence[Evaluation]]

    @cached_property
    def repeats(self) -> int:
        """Seeds that every mechanism was trained with."""
        return min((len(found) for found in self.trainings.values()), default=0)

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """What was measured, by name."""
        return tuple(sorted({n for own in self.trainings.values() for e in own for n in e.metrics}))

    @cached_property
    def setting(self) -> CostContext:
        """Where its mechanisms are counted."""
        model = parse_task(parse_yaml(self.task.text, self.name), f"table {self.name}").main
        return CostContext(model.sizes, model.qkv_bias, model.is_causal, calibration={})

    def key_of(self, genome: Genome) -> str:
        """What the mechanism is called here, at the table's own sizes.

        Raises:
            GenomeError: it does not exist at these sizes.
            TableError: it is not in the table.
        """
        key = self.setting.resolve(genome).key
        if key not in self.mechanisms:
            raise TableError(
                f"table {self.name} holds no mechanism {key}; expected one of its space "
                f"{self.space.name}."
            )
        return key

    def costs(self, key: str, names: Iterable[str]) -> dict[str, float]:
        """Costs of a mechanism at the sizes of its task, by name."""
        return costs_of(self.setting.resolve(self.mechanisms[key]), self.setting, names)

    def scores(self, name: str, epoch: int | None = None) -> NDArray[np.float64]:
        """A number of every training: (mechanisms, repeats); NaN where it failed.

        Args:
            name: a metric, ``train_loss`` or ``core_seconds``.
            epoch: from 1; None for the last.
        """
        rows = [self.trainings[key][: self.repeats] for key in self.mechanisms]
        return np.array([[_number(one, name, epoch) for one in row] for row in rows])

    def write(self, path: Path) -> None:
        """Write the file, whole or not at all.

        Raises:
            TableError: the folder cannot be written.
        """
        text = json.dumps(_to_dict(self), separators=(",", ":"), allow_nan=False)
        try:
            write_whole(path, gzip.compress(text.encode(), mtime=0))
        except OSError as error:
            raise TableError(f"{path}: cannot be written ({error.strerror}).") from None


def tables() -> list[str]:
    """The names of the built-in tables."""
    return sorted(path.name.removesuffix(SUFFIX) for path in FOLDER.glob(f"*{SUFFIX}"))


def load_table(name_or_path: str) -> Table:
    """Read a table by name or by path.

    Raises:
        TableError: there is none, or the file holds something else.
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
        if path.exists() and not path.is_file():  # a pipe, which would never end
            raise OSError("no regular file")
        with gzip.open(path) as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES} bytes")
        return _from_dict(json.loads(content))
    except OSError as error:
        raise TableError(f"{path}: cannot be read ({error.strerror or error}).") from None
    except (
        ArithmeticError,
        AttributeError,
        EOFError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
        zlib.error,
    ) as error:
        raise TableError(
            f"{path}: is no table of this version ({type(error).__name__}: {error})."
        ) from None


def _number(evaluation: Evaluation, name: str, epoch: int | None) -> float:
    if not evaluation.is_ok:
        return float("nan")
    report = evaluation.reports[-1 if epoch is None else epoch - 1]
    return float(getattr(report, name)) if name in OWN else report.metrics[name]


def _to_dict(table: Table) -> dict[str, Any]:
    return {
        "version": VERSION,
        "name": table.name,
        "about": table.about,
        "space": asdict(table.space),
        "policy": asdict(table.policy),
        "task": asdict(table.task),
        "origin": asdict(table.origin),
        "metrics": table.metrics,
        "mechanisms": [genome.to_dict() for genome in table.mechanisms.values()],
        "keys": list(table.mechanisms),
        "trainings": [
            [_row(one, table.metrics) for one in table.trainings.get(key, ())]
            for key in table.mechanisms
        ],
    }


def _row(one: Evaluation, metrics: Sequence[str]) -> list[Any]:
    """A training: seed, status, reason, budget, and of each epoch loss, time and metrics."""
    reports = [
        [_short(n) for n in (r.train_loss, r.core_seconds, *(r.metrics[m] for m in metrics))]
        for r in one.reports
    ]
    budget = [one.budget.epochs, one.budget.examples, one.budget.precision]
    return [one.seed, one.status, one.reason, budget, one.hardware, reports]


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
    )


def _document(data: Mapping[str, Any]) -> Document:
    return Document(**{name: str(value) for name, value in data.items()})


def _words(found: Any) -> tuple[str, ...]:
    """A list of different words."""
    words = tuple(str(word) for word in found)
    if not isinstance(found, list) or len({*words}) < len(words):
        raise ValueError(f"{describe(found)}, expected a list of different words")
    return words


def _training(row: Sequence[Any], metrics: Sequence[str]) -> Evaluation:
    seed, status, reason, budget, hardware, found = row
    numbers = [[float(number) for number in report] for report in found]
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
    """To a few significant digits; JSON knows no NaN and no infinity."""
    return float(f"{number:.{DIGITS}g}") if np.isfinite(number) else str(number)
