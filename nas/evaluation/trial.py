"""Trials, their evaluations, recorded trainings, and the protocol of evaluators.

An `Evaluator` trains a `Trial` and returns an `Evaluation`; a `Training` is an evaluation with its
purpose, task and mechanism. This module imports no torch.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Protocol, TypeAlias

from pydantic import ConfigDict, Field

from nas.common.text import encodable, message
from nas.training import Report

if TYPE_CHECKING:
    from nas.tasks import Data, Task
    from nas.training.user_module import Mechanism

Purpose: TypeAlias = Literal["search", "target", "confirm", "evaluate", "explain", "reference"]
Stage: TypeAlias = Literal["", "search", "long", "test"]
Status: TypeAlias = Literal["ok", "stopped", "failed"]
Reason: TypeAlias = Literal[
    "diverged", "constant", "leak", "out_of_memory", "time_limit", "worker_lost", "error"
]
Seconds: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
IncidentKind: TypeAlias = Literal["node", "memory", "process", "refused", "waiting"]

# Reasons of recorded failures that every resumed command trains again.
RETRIED_ON_RESUME: Final[frozenset[Reason]] = frozenset({"worker_lost"})
NOT_RECORDED: Final = datetime.min.replace(tzinfo=UTC)
MAX_ERROR_CHARACTERS: Final = 2000
_STRICT: Final = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Trial:
    """A training to run."""

    key: str  # digest of the mechanism at the task's sizes (width, heads, layers and tokens)
    mechanism: Mechanism  # the validated genome in normal form, or a user's own torch module
    seed: int  # from `training_seed`
    repeat: int = 0  # index among the trainings of this mechanism
    work: float = 0.0  # expected duration in any unit; trials with most work start first
    keeps_weights: bool = False  # whether the evaluation has the weights of the attention layers
    purpose: Purpose = "search"
    learning_rate: float | None = None  # one of ``Task.at_rates``; None for the task's own

    @property
    def is_target(self) -> bool:
        """Whether an evaluator with a target task trains under it: in a search its own trials."""
        return self.purpose != "search"


@dataclass(frozen=True, slots=True)
class Budget:
    """The number of epochs, the training examples per epoch, and the precision of a training."""

    __pydantic_config__ = _STRICT
    epochs: int
    examples: int
    precision: str

    def __str__(self) -> str:
        epochs = f"{self.epochs} epoch{'s' if self.epochs != 1 else ''}"
        return f"{epochs} x {self.examples} examples, {self.precision}"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The outcome of a trial, which is one training.

    Attributes:
        status: "stopped" if a metric misses the bound of a gate. Only mechanisms with "ok" can be
            in a front.
        reason: why the training failed; None unless the status is "failed".
        metrics: the task's metrics after the last epoch, by name; finite if the status is "ok".
        reports: reports of all completed epochs.
        core_seconds: processor time.
        worker: host name and process id.
        hardware: name of the processor or GPU.
        execution: how the steps ran: "cpu, eager", "cuda graph", or the reason why the steps on a
            GPU could not be captured in a CUDA graph.
        error: error message, or the bound that a metric missed; None if the status is "ok".
        weights: weights of the attention layers as safetensors, if the trial keeps them; they are
            neither recorded nor in `to_dict`.
    """

    __pydantic_config__ = _STRICT
    status: Status
    reason: Reason | None
    metrics: Mapping[str, float]
    reports: tuple[Report, ...]
    seed: int
    budget: Budget
    wall_seconds: Seconds
    core_seconds: Seconds
    peak_memory_bytes: int
    worker: str
    hardware: str = ""
    execution: str = ""
    error: str | None = None
    weights: Annotated[bytes | None, Field(exclude=True)] = field(
        default=None, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if (self.status == "failed") != (self.reason is not None):
            raise ValueError(f"the status {self.status!r} with the reason {self.reason!r}")
        if self.is_ok and not all(map(math.isfinite, self.metrics.values())):
            raise ValueError(f"an ok training with the metrics {dict(self.metrics)!r}")

    @classmethod
    def failure(
        cls, trial: Trial, budget: Budget, reason: Reason, text: str, worker: str, seconds: float
    ) -> Evaluation:
        """Return a failed evaluation without metrics and reports, after so many seconds."""
        error = text[:MAX_ERROR_CHARACTERS]
        return cls(
            "failed", reason, {}, (), trial.seed, budget, seconds, 0.0, 0, worker, error=error
        )

    @property
    def seconds(self) -> float:
        """The processor time of a training on a processor, the elapsed time on a GPU."""
        return self.wall_seconds if self.execution.startswith("cuda") else self.core_seconds

    @property
    def is_ok(self) -> bool:
        """Whether the training was completed and missed no gate."""
        return self.status == "ok"

    def value(self, metric: str) -> float | None:
        """Return the metric of this name after the training; None if the training failed."""
        return self.metrics[metric] if self.is_ok else None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON data; numbers that are not finite become text ("nan")."""
        data: dict[str, Any] = encodable(asdict(self))
        del data["weights"]
        return data


def is_retried(evaluation: Evaluation, retry_failed: bool = False) -> bool:
    """Return whether a resumed command repeats a training; with ``retry_failed`` any failed one."""
    is_failed = evaluation.status == "failed"
    return is_failed and (retry_failed or evaluation.reason in RETRIED_ON_RESUME)


@dataclass(frozen=True, slots=True)
class Training:
    """A finished training: its evaluation, with the purpose, the task and the mechanism.

    Attributes:
        purpose: the command that ran the training, "target" for a training of a search under its
            target task, or "reference" for one of a known mechanism to compare candidates with.
        task: digest of task and data, see `task_fingerprint`.
        key: as ``Trial.key``. The command ``confirm`` uses the sizes of the search's task in all
            its stages, as does a search for trainings under its target task.
        name: name of the mechanism, or the command-line argument that defines it; empty if it has
            neither.
        stage: stage of ``confirm``: "search" trains under the search's task, "long" under a longer
            task, and "test" evaluates on the test set; empty for all other purposes.
        digest: digest of the genome in normal form, or empty; it is not recorded.
        learning_rate: as ``Trial.learning_rate``.
    """

    purpose: Purpose
    task: str
    task_name: str
    key: str
    name: str
    repeat: int
    evaluation: Evaluation
    stage: Stage = ""
    digest: Annotated[str, Field(exclude=True)] = ""
    learning_rate: float | None = None
    recorded: datetime = NOT_RECORDED

    @property
    def part(self) -> str:
        """The purpose of the training; of ``confirm`` instead "fresh", "long" or "test"."""
        return {"search": "fresh"}.get(self.stage, self.stage) or self.purpose

    def to_dict(self) -> dict[str, Any]:
        """Return the training as JSON data: its part, task and repeat, and its evaluation."""
        place = {"part": self.part, "task": self.task_name, "repeat": self.repeat}
        return place | {"learning_rate": self.learning_rate} | self.evaluation.to_dict()


@dataclass(frozen=True, slots=True)
class Incident:
    """An event in the life of a worker, which is reported and recorded, and changes no result.

    Attributes:
        kind: "node", "memory" or "process": a worker was lost (see ``WorkerLostError``). "refused":
            a worker cannot train on its machine. "waiting": there is no worker.
        worker: host name and process id; empty if unknown.
        key, repeat: those of the trial that the worker was running, if any.
    """

    kind: IncidentKind
    text: str
    worker: str = ""
    key: str | None = None
    repeat: int | None = None


def log(incident: Incident) -> None:
    """Log an incident as a warning of the logger ``nas``."""
    logging.getLogger("nas").warning("%s", message(incident.text))


class Evaluator(Protocol):
    """Trains trials, on one worker or several.

    `wait` returns each submitted trial once, in any order. A failure of a candidate becomes a
    failed evaluation, never an exception (but a user's KeyboardInterrupt is raised). Metrics do not
    depend on the number of workers. ``on_incident`` is called with each incident as it happens.
    """

    on_incident: Callable[[Incident], None]

    @property
    def workers(self) -> int:
        """The number of trainings that run at once."""

    def measure(self, function: Callable[[str], Any]) -> Any:
        """Call a function of the device, "cpu" or "cuda", on a worker while no trial runs."""

    def submit(self, trials: Sequence[Trial]) -> None:
        """Queue trials, which are trainings to run; `wait` returns their evaluations."""

    def wait(self) -> list[tuple[Trial, Evaluation]]:
        """Block until a trial finishes, and return all finished trials; [] if there is no trial."""

    def close(self) -> None:
        """Stop the workers and release the data. Calling it again does nothing."""


def run_trials(evaluator: Evaluator, trials: Sequence[Trial]) -> Iterator[tuple[Trial, Evaluation]]:
    """Submit trials to an evaluator, and yield each trial with its evaluation as it finishes."""
    evaluator.submit(trials)
    while finished := evaluator.wait():
        yield from finished


def task_fingerprint(task: Task, data: Data) -> str:
    """Return a digest, 16 hex characters, of a task's fields and the content of its data."""
    return hashlib.sha256(f"{task.fingerprint()}|{data.digest}".encode()).hexdigest()[:16]


def training_seed(run_seed: int, key: str, repeat: int) -> int:
    """Return the seed of a training, 0 <= seed < 2**31, which is a hash of the three arguments.

    ``key`` is ``Trial.key``, or the same text for mechanisms that must share their seeds.
    """
    text = f"nas training seed 1|{run_seed}|{key}|{repeat}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1
