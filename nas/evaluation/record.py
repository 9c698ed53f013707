"""The record of one evaluation: what was asked, what came back, and in which units.

A `Job` asks for one training of one genome under one seed; an `Evaluation` is its answer, good or
bad. Both are plain frozen values without torch: they travel to workers and back, and through
`to_dict` and `from_dict` into the run database. An `Evaluator` turns jobs into evaluations.
"""

import dataclasses
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, get_args

from nas.errors import RunError
from nas.training.curve import Epoch

if TYPE_CHECKING:
    from nas.evaluation.choices import Choices
    from nas.genome import Genome

Status: TypeAlias = Literal["ok", "failed"]
Reason: TypeAlias = Literal["diverged", "out_of_memory", "time_limit", "worker_lost", "error"]
Direction: TypeAlias = Literal["max", "min"]

STATUSES: Final[tuple[Status, ...]] = get_args(Status)
REASONS: Final[tuple[Reason, ...]] = get_args(Reason)


@dataclass(frozen=True, slots=True)
class Objective:
    """Something a search optimises: its name, the better direction, its unit and its meaning."""

    name: str
    direction: Direction
    unit: str
    about: str


OBJECTIVES: Final[Mapping[str, Objective]] = MappingProxyType(
    {
        objective.name: objective
        for objective in (
            Objective("accuracy", "max", "fraction", "share of held-out training images got right"),
            Objective("macs", "min", "MAC", "multiply-accumulates of all attention layers"),
            Objective("params", "min", "count", "parameters of all attention layers"),
            Objective(
                "kv_cache_bytes_per_token", "min", "byte", "bytes cached for a token, at 16 bits"
            ),
            Objective(
                "latency_ms",
                "min",
                "ms",
                "time of the attention layers for one image, after training",
            ),
        )
    }
)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What one training gave. Only an `ok` evaluation can reach a front.

    Args:
        status: "ok" or "failed".
        reason: why it failed; None exactly when the status is "ok".
        objectives: value by objective name, units as in `OBJECTIVES`; finite when "ok".
        curve: the learning curve as far as training came.
        seed: the training seed (see `training_seed`).
        budget: the training budget in words, for example "3 epochs x 4096 images".
        wall_seconds: elapsed time, s.
        core_seconds: processor time over all threads, s.
        peak_memory_bytes: peak memory of the worker, bytes.
        worker: who did it, for example a host and a process id.
        error: the error text of a failure, None when "ok".
        execution: how its steps ran, in words: "cpu, eager", "cuda graph", or why not so; empty
            where nothing ran, and in records of older versions.
    """

    status: Status
    reason: Reason | None
    objectives: Mapping[str, float]
    curve: tuple[Epoch, ...]
    seed: int
    budget: str
    wall_seconds: float
    core_seconds: float
    peak_memory_bytes: int
    worker: str
    error: str | None
    execution: str = ""

    def __post_init__(self) -> None:
        fault = self._fault()
        assert fault is None, fault

    @property
    def is_ok(self) -> bool:
        """Whether the training ended well, with finite objectives."""
        return self.status == "ok"

    def to_dict(self) -> dict[str, Any]:
        """Give plain JSON data; JSON knows no NaN, so a non-finite number becomes its name."""
        data = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        data["objectives"] = {name: _to_json(value) for name, value in self.objectives.items()}
        data["curve"] = [
            [point.epoch, _to_json(point.train_loss), _to_json(point.validation_accuracy)]
            for point in self.curve
        ]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Evaluation":
        """Read what `to_dict` gave.

        Raises:
            RunError: a field is missing, unknown, or holds what no evaluation holds.
        """
        try:
            objectives = {str(name): float(value) for name, value in data["objectives"].items()}
            curve = tuple(Epoch(int(n), float(loss), float(acc)) for n, loss, acc in data["curve"])
            return cls(**{**data, "objectives": objectives, "curve": curve})
        except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
            fault = f"{type(error).__name__}: {error}"
            raise RunError(f"this is no evaluation record ({fault}).") from error

    def _fault(self) -> str | None:
        if self.status not in STATUSES:
            return f"status {self.status!r} is none of {', '.join(STATUSES)}"
        if self.status == "ok":
            return self._fault_of_ok()
        return None if self.reason in REASONS else f"reason {self.reason!r} of a failed training"

    def _fault_of_ok(self) -> str | None:
        if self.reason is not None:
            return f"an ok training with the reason {self.reason!r}"
        is_finite = self.objectives and all(map(math.isfinite, self.objectives.values()))
        return None if is_finite else f"an ok training with the objectives {self.objectives!r}"


@dataclass(frozen=True, slots=True)
class Job:
    """One training to do.

    Args:
        key: the genome's digest resolved at the task's sizes: what replay goes by.
        genome: the genome to train, already validated.
        seed: the training seed, from `training_seed`.
    """

    key: str
    genome: "Genome"
    seed: int


class Evaluator(Protocol):
    """Carries out jobs.

    Contract: `run` yields every job once with its evaluation, as they finish, in any order. A
    candidate's fault is a failed evaluation, never an exception; KeyboardInterrupt passes through.
    What an evaluation's objectives hold depends on job and task, not on the number of workers.
    """

    @property
    def workers(self) -> int:
        """How many trainings run at once."""
        ...

    def choose(self, seeds: int = 1) -> "Choices":
        """Measure, where trainings take place, how to compute them best; nothing changes yet.

        Args:
            seeds: trainings of each genome: whether they are better done in one pass.
        """
        ...

    def use(self, choices: "Choices") -> None:
        """Compute so from now on; without it, by the task and by rules of thumb."""
        ...

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Evaluation]]:
        """Yield each job with its evaluation as it finishes."""
        ...

    def close(self) -> None:
        """Let go of workers and data; calling it again does nothing."""
        ...


def training_seed(run_seed: int, key: str, repeat: int) -> int:
    """Derive a training's seed, 0 <= seed < 2**31, from run seed, resolved digest and repeat.

    A hash, not a counter: the seed does not depend on when or in which order a genome was proposed.
    """
    text = f"nas training seed 1|{run_seed}|{key}|{repeat}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


def _to_json(value: float) -> float | str:
    return value if math.isfinite(value) else str(float(value))
