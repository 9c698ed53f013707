"""The records of a run as immutable dataclasses, and their conversion to JSON text and back.

``nas.evaluation.trial`` defines trainings and incidents. Every time is an aware datetime.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar, cast

from pydantic import (
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    ValidationError,
)

from nas.common.differences import mean_and_error
from nas.common.objectives import Metric, Objective, SearchConfig
from nas.common.text import encodable
from nas.evaluation.trial import Training
from nas.genome import Genome

Verdict: TypeAlias = Literal["new", "repeated", "replayed", "rejected"]
RunStatus: TypeAlias = Literal["running", "stopped", "finished"]
TARGET: Final = "target"  # operator of a proposal that is trained under the target task
CandidateStatus: TypeAlias = Literal["ok", "failed", "stopped", "waiting", "duplicate", "rejected"]
T = TypeVar("T")
_adapter: Final[Callable[[Any], TypeAdapter[Any]]] = cache(TypeAdapter)
_FINITE: Final = ConfigDict(allow_inf_nan=False)


def utc_now() -> datetime:
    """Return the present time as an aware datetime."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Document:
    """The YAML text of a space, a policy (path rules of a space) or a task when the run began.

    ``fingerprint`` is a digest of 16 hexadecimal characters; a task's also covers its data.
    """

    name: str
    text: str
    fingerprint: str

    @classmethod
    def of(cls, name: str, text: str) -> Document:
        """Return a document whose fingerprint is a digest of its text."""
        return cls(name, text, hashlib.sha256(text.encode()).hexdigest()[:16])


@dataclass(frozen=True, slots=True)
class RunSetup:
    """Everything that determines the results of a run; later only ``generations`` may be raised.

    ``calibration`` holds measured times of elementary operations, from which ``time_ms`` is
    predicted. ``metrics`` are all metrics that a training measures. ``target`` is the longer task
    whose front the run searches; None if it is ``task``.
    """

    config: SearchConfig
    space: Document
    policy: Document
    task: Document
    objectives: Annotated[tuple[Objective, ...], Field(min_length=1)]
    calibration: Mapping[str, Any] = field(default_factory=dict)
    metrics: tuple[Metric, ...] = ()
    target: Document | None = None

    @property
    def front_task(self) -> Document:
        """The task whose front the run searches."""
        return self.target or self.task


@dataclass(frozen=True, slots=True)
class Session:
    """A process that begins or resumes a run; by default this process, from now on.

    ``versions`` are those of Python, libraries and plug-in packages, by name. ``ended`` is None
    while the process writes the run, and if it was killed. ``note`` says why a finished search
    ended early, or with which error a stopped one ended.
    """

    command: str
    versions: Mapping[str, str]
    hardware: str
    workers: int = 1
    pid: int = field(default_factory=os.getpid)
    host: str = field(default_factory=socket.gethostname)
    started: datetime = field(default_factory=utc_now)
    ended: datetime | None = None
    status: RunStatus = "running"
    note: str = ""


def _genome(data: Any) -> Genome:
    return data if isinstance(data, Genome) else Genome.from_dict(data)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A genome that the search proposed, and the verdict whether it is trained.

    Attributes:
        number: the same for all attempts, which are made until one is trained.
        digest: digest of the genome in normal form; commands show it as the mechanism's id.
        key: digest of the genome with all sizes set to those of the task, equal for mechanisms that
            compute the same function; None if the genome is rejected.
        operator: the operator that made the genome: "sample", "crossover", "mechanism", ...
        name: name of the published mechanism that the genome is.
        parents: digests of the genomes that the operator changed or combined.
        verdict: "new" if the mechanism is trained for the first time, "repeated" if it is trained
            again with another seed, "replayed" if it is a duplicate and not trained, "rejected" if
            it is not legal (``note`` says why).
        costs: costs of all attention layers at the task's sizes; empty unless it is trained.
    """

    __pydantic_config__ = _FINITE
    number: int
    attempt: int
    digest: str
    key: str | None
    genome: Annotated[Genome, PlainSerializer(Genome.to_dict), PlainValidator(_genome)]
    formula: str
    operator: str
    name: str | None
    parents: tuple[str, ...]
    verdict: Verdict
    note: str = ""
    costs: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_new(self) -> bool:
        """Whether the mechanism is trained for the first time."""
        return self.verdict == "new"

    @property
    def is_target(self) -> bool:
        """Whether the mechanism, which the run has trained, is trained under the target task."""
        return self.operator == TARGET and self.verdict == "repeated"

    @property
    def is_trained(self) -> bool:
        """Whether the mechanism is trained, for the first time or again."""
        return self.verdict in {"new", "repeated"}


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of proposals by verdict, and of new mechanisms by the outcome of their trainings.

    All trainings of ``evaluated`` mechanisms have ended, also of ``failed`` and ``stopped`` ones.
    """

    proposed: int = 0
    evaluated: int = 0
    repeated: int = 0
    replayed: int = 0
    rejected: int = 0
    failed: int = 0
    stopped: int = 0


@dataclass(frozen=True, slots=True)
class Estimate:
    """Posterior estimates of a mechanism's objectives after a generation.

    ``means`` are of all objectives and ``errors`` of the metrics, by name, in the objective's unit.
    ``p`` is the probability that the mechanism is within the limits of the objectives and that no
    other mechanism within them dominates it. ``is_member``: whether the front of means has it.
    """

    __pydantic_config__ = _FINITE
    key: str
    means: Mapping[str, float]
    errors: Mapping[str, float]
    p: float
    is_member: bool


@dataclass(frozen=True)
class Candidate:
    """What a run recorded about a mechanism: its first proposal, its trainings and its estimate.

    Attributes:
        trainings: finished trainings of the search, sorted by the index of the repeat.
        estimate: estimate after the last generation; None before the end of the first generation,
            and if a training failed.
        num_repeats: number of ``trainings`` that a result needs.
        target: finished trainings under the run's target task, of which a result needs one; None if
            the run has no target task.
    """

    proposal: Proposal
    trainings: tuple[Training, ...] = ()
    estimate: Estimate | None = None
    num_repeats: int = 1
    target: tuple[Training, ...] | None = None

    @property
    def digest(self) -> str:
        """See ``Proposal``."""
        return self.proposal.digest

    @property
    def key(self) -> str:
        """See ``Proposal``."""
        return str(self.proposal.key)

    @property
    def costs(self) -> Mapping[str, float]:
        """See ``Proposal``."""
        return self.proposal.costs

    @cached_property
    def status(self) -> CandidateStatus:
        """The combined status of all trainings, which is "waiting" until the last has ended.

        One failed training suffices for "failed"; else one that missed a score that its task
        requires, for "stopped". A mechanism that is not trained is "duplicate" or "rejected".
        """
        if not self.proposal.is_new:
            return "rejected" if self.proposal.verdict == "rejected" else "duplicate"
        statuses = {training.evaluation.status for training in self.searched}
        for status in ("failed", "stopped"):
            if status in statuses:
                return status
        is_complete = len(self.trainings) >= self.num_repeats and self.target != ()
        return "ok" if is_complete else "waiting"

    @property
    def is_ok(self) -> bool:
        """Whether all trainings succeeded, so that the mechanism has a result."""
        return self.status == "ok"

    @property
    def is_estimated(self) -> bool:
        """Whether the metrics in ``objectives`` are posterior means."""
        return self.estimate is not None and bool(self.estimate.errors)

    @property
    def searched(self) -> tuple[Training, ...]:
        """All trainings in the search, those under its target task last."""
        return (*self.trainings, *(self.target or ()))

    @property
    def scored(self) -> tuple[Training, ...]:
        """The trainings that ``scores`` are of: under the target task, or without one all."""
        return self.trainings if self.target is None else self.target

    @cached_property
    def scores(self) -> Mapping[str, float]:
        """Mean of each measured metric over ``scored``, by name; empty unless ``is_ok``."""
        return {name: mean for name, (mean, _) in self._means.items()}

    @cached_property
    def errors(self) -> Mapping[str, float]:
        """Standard errors of metrics in ``objectives``; without estimates, none of one value."""
        if self.estimate is not None:
            return self.estimate.errors
        return {name: error for name, (_, error) in self._means.items() if error is not None}

    @cached_property
    def objectives(self) -> Mapping[str, float]:
        """All costs, and posterior means of metrics (else means), by name; empty unless ok."""
        if not self.is_ok:
            return {}
        return {**self.costs, **self.scores, **(self.estimate.means if self.estimate else {})}

    @property
    def p(self) -> float | None:
        """The probability of being in the front (``Estimate.p``); None if not estimated."""
        return None if self.estimate is None else self.estimate.p

    @cached_property
    def _means(self) -> dict[str, tuple[float, float | None]]:
        if not self.is_ok:
            return {}
        metrics = [training.evaluation.metrics for training in self.scored]
        return {name: mean_and_error([row[name] for row in metrics]) for name in metrics[0]}


@dataclass(frozen=True, slots=True)
class Generation:
    """The state of a run after a generation.

    ``hypervolume`` is that of the front by estimates, as a fraction of the box between the ideal
    and the reference values of the objectives. ``best`` is the best estimate of the first objective
    in its unit; None without a result. ``front`` has the digests of the front's mechanisms from
    best to worst in the first objective.
    """

    __pydantic_config__ = _FINITE
    number: int
    finished: datetime
    hypervolume: float
    best: float | None
    front: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One line of the list of runs; at ``active`` a process last began to write the run."""

    name: str
    folder: Path
    status: RunStatus
    active: datetime
    setup: RunSetup
    sessions: tuple[Session, ...]
    generations: tuple[Generation, ...]
    counts: Counts


def to_json(record: object) -> str:
    """Return a record as JSON text; infinite numbers and NaN are texts in it."""
    data = _adapter(type(record)).dump_python(record, mode="json")
    return json.dumps(encodable(data), ensure_ascii=False, allow_nan=False)


def from_json(kind: type[T], text: str) -> T:
    """Return the record that ``to_json`` wrote; raise ValueError or NasError if it is damaged."""
    try:
        return cast("T", _adapter(kind).validate_json(text))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{kind.__name__}, {where}: {first['msg']}") from error
