"""A trial and its outcome: what was asked of a training, what it reported, how it ended.

An `Evaluator` turns a `Trial` into an `Evaluation`, good or bad. Both are plain frozen values
without torch: they travel to workers and back, and an evaluation to files and run databases.
"""

from __future__ import annotations

import hashlib
import logging
import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, get_args

from nas.common.errors import RunError
from nas.training.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from nas.genome import Genome

Status: TypeAlias = Literal["ok", "stopped", "failed"]
Reason: TypeAlias = Literal[
    "diverged", "constant", "leak", "out_of_memory", "time_limit", "worker_lost", "error"
]

Kind: TypeAlias = Literal[
    "preempted", "node", "memory", "process", "gpu_unusable", "error", "refused", "waiting", "back"
]

STATUSES: Final[tuple[Status, ...]] = get_args(Status)
REASONS: Final[tuple[Reason, ...]] = get_args(Reason)
MAX_ERROR_CHARACTERS: Final = 2000


@dataclass(frozen=True, slots=True)
class Trial:
    """One training to do.

    Attributes:
        key: the genome's digest resolved at the task's sizes: what replay goes by.
        genome: in normal form, already validated.
        seed: the training seed, from `training_seed`.
        repeat: the how-manieth training of its genome, from 0.
        work: how long it will take, in any unit that is the same for all: longest first.
        keeps_weights: whether the attention layers' weights come back with the evaluation.
    """

    key: str
    genome: Genome
    seed: int
    repeat: int = 0
    work: float = 0.0
    keeps_weights: bool = False


@dataclass(frozen=True, slots=True)
class Budget:
    """What a training was given: epochs, training examples in each, and the precision."""

    epochs: int
    examples: int
    precision: str

    def __str__(self) -> str:
        epochs = f"{self.epochs} epoch{'s' if self.epochs != 1 else ''}"
        return f"{epochs} x {self.examples} examples, {self.precision}"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What one trial gave. Only an `ok` one can reach a front.

    Attributes:
        status: "ok", "stopped" (at a gate of its task, as far as it came) or "failed".
        reason: why it failed; None unless the status is "failed".
        metrics: what the task makes of the last reports, by name; finite when "ok".
        reports: one an epoch, as far as training came.
        peak_memory_bytes: of the worker.
        worker: who did it: a host and a process id.
        hardware: the processor or GPU that trained.
        execution: how its steps ran, for people: "cpu, eager", "cuda graph", or why not so.
        error: the error text of a failure, or the gate that was missed.
        weights: safetensors of the attention layers, if asked for; kept as a file, not as a row.
    """

    status: Status
    reason: Reason | None
    metrics: Mapping[str, float]
    reports: tuple[Report, ...]
    seed: int
    budget: Budget
    wall_seconds: float
    core_seconds: float
    peak_memory_bytes: int
    worker: str
    hardware: str = ""
    execution: str = ""
    error: str | None = None
    weights: bytes | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        reasons = REASONS if self.status == "failed" else (None,)
        if self.status not in STATUSES or self.reason not in reasons:
            raise ValueError(f"the status {self.status!r} with the reason {self.reason!r}")
        if self.is_ok and not all(map(math.isfinite, self.metrics.values())):
            raise ValueError(f"an ok training with the metrics {dict(self.metrics)!r}")

    @classmethod
    def failure(
        cls, trial: Trial, budget: Budget, reason: Reason, text: str, worker: str, seconds: float
    ) -> Evaluation:
        """A failure of which only the reason, the worker and the time in seconds are known."""
        error = text[:MAX_ERROR_CHARACTERS]
        return cls(
            "failed", reason, {}, (), trial.seed, budget, seconds, 0.0, 0, worker, error=error
        )

    @property
    def is_ok(self) -> bool:
        """Whether the training ended well, with finite metrics."""
        return self.status == "ok"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data; JSON knows no NaN, so a number that is not finite becomes its name."""
        data: dict[str, Any] = _plain(asdict(self))
        del data["weights"]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Evaluation:
        """Read what `to_dict` gave.

        Raises:
            RunError: a field is missing, unknown, or holds what no evaluation holds.
        """
        try:
            return cls(
                **{
                    **data,
                    **{name: kind(data[name]) for name, kind in _KINDS.items() if name in data},
                    "metrics": _numbers(data["metrics"]),
                    "budget": _budget(data["budget"]),
                    "reports": tuple(_report(found) for found in data["reports"]),
                }
            )
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            fault = f"{type(error).__name__}: {error}"
            raise RunError(f"this is no evaluation record ({fault}).") from error


@dataclass(frozen=True, slots=True)
class Incident:
    """What befell the machines: for people and for the record. It changes no result.

    Attributes:
        kind: how a worker was lost ("preempted", its "node", its "memory", its "process" alone, or
            "gpu_unusable": it can use its GPU no longer);
            or an "error" of a training that is tried again in another worker; a worker that was
            "refused"; "waiting" for any worker, who is "back".
        text: a sentence.
        worker: host and process id, where one is meant and known.
        key, repeat: of the trial that is begun again, if any.
    """

    kind: Kind
    text: str
    worker: str = ""
    key: str | None = None
    repeat: int | None = None


def log(incident: Incident) -> None:
    """Tell whoever listens to the logger ``nas``; Python's default is standard error."""
    text = "".join(c if c.isprintable() else "?" for c in incident.text)
    logging.getLogger("nas").warning("%s", text[:MAX_ERROR_CHARACTERS])


class Evaluator(Protocol):
    """Carries out trials.

    Contract: every trial that was submitted comes back once from `wait`, in any order; a
    candidate's fault is a failed evaluation, never an exception; KeyboardInterrupt passes through.
    What an evaluation's metrics hold depends on trial and task, not on the number of workers.

    Attributes:
        on_incident: called with each incident as it happens; whoever wants to know sets it.
    """

    on_incident: Callable[[Incident], None]

    @property
    def workers(self) -> int:
        """How many trainings run at once."""
        ...

    def calibrate(self) -> Mapping[str, Any]:
        """Measure, where trainings take place, units of predicted times (nas.costs.timing)."""
        ...

    def submit(self, trials: Sequence[Trial]) -> None:
        """Take on more trials; the one with most work waits least."""
        ...

    def wait(self) -> list[tuple[Trial, Evaluation]]:
        """Block until trials are done, and give all that are; empty where none is under way."""
        ...

    def close(self) -> None:
        """Let go of workers and data, whatever they do; calling it again does nothing."""
        ...


def run_trials(evaluator: Evaluator, trials: Sequence[Trial]) -> Iterator[tuple[Trial, Evaluation]]:
    """Yield each trial with its evaluation as it finishes."""
    evaluator.submit(trials)
    while found := evaluator.wait():
        yield from found


def training_seed(run_seed: int, key: str, repeat: int) -> int:
    """Derive a training's seed, 0 <= seed < 2**31, from run seed, resolved digest and repeat.

    A hash, not a counter: the seed does not depend on when or in which order a genome was proposed.
    """
    text = f"nas training seed 1|{run_seed}|{key}|{repeat}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


def _seconds(value: Any) -> float:
    seconds = float(value)
    if not 0 <= seconds < math.inf:
        raise ValueError(f"it took {seconds} seconds")
    return seconds


# What the fields of an evaluation are beside metrics, budget and reports.
_KINDS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "seed": int,
    "wall_seconds": _seconds,
    "core_seconds": _seconds,
    "peak_memory_bytes": int,
    "worker": str,
    "hardware": str,
    "execution": str,
    "error": lambda found: None if found is None else str(found),
}


def _budget(data: Mapping[str, Any]) -> Budget:
    epochs, examples = int(data["epochs"]), int(data["examples"])
    return Budget(**{**data, "epochs": epochs, "examples": examples})


def _report(data: Mapping[str, Any]) -> Report:
    numbers = {name: float(data[name]) for name in ("train_loss", "core_seconds")}
    metrics = _numbers(data["metrics"])
    return Report(**{**data, **numbers, "epoch": int(data["epoch"]), "metrics": metrics})


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {str(name): float(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
