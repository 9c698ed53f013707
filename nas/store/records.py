"""The records of a run as frozen values: setup, sessions, proposals, estimates, candidates.

Trials, evaluations and trainings are in ``nas.evaluation.trial``. Times are aware datetimes. The
complete texts of space, policy and task are kept, so that a run is readable without the repository.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

from nas.common.differences import mean_and_error
from nas.common.objectives import Metric, Objective
from nas.common.search_config import SearchConfig
from nas.evaluation.trial import Evaluation, Training
from nas.genome import Genome

Verdict: TypeAlias = Literal["new", "repeated", "replayed", "rejected"]
RunStatus: TypeAlias = Literal["running", "stopped", "finished"]
CandidateStatus: TypeAlias = Literal["ok", "failed", "stopped", "waiting", "duplicate", "rejected"]


@dataclass(frozen=True, slots=True)
class Document:
    """A space, policy or task as it was when the run began: its name, YAML text, fingerprint."""

    name: str
    text: str
    fingerprint: str

    @classmethod
    def of(cls, name: str, text: str) -> Document:
        """A document whose fingerprint is the digest of its text."""
        return cls(name, text, hashlib.sha256(text.encode()).hexdigest()[:16])


@dataclass(frozen=True, slots=True)
class RunSetup:
    """Everything that determines the results of a run, fixed when it begins.

    Attributes:
        config: the settings of the search.
        objectives: in the order of every vector of costs.
        calibration: unit times of predicted times, as JSON data; empty if no objective needs it.
        metrics: everything that a training measures, with units.
    """

    config: SearchConfig
    space: Document
    policy: Document
    task: Document
    objectives: tuple[Objective, ...]
    calibration: Mapping[str, Any] = field(default_factory=dict)
    metrics: tuple[Metric, ...] = ()

    def unit(self, name: str) -> str:
        """The unit of a metric or objective; empty if it has none or is unknown."""
        units = {metric.name: metric.unit for metric in self.metrics}
        units |= {objective.name: objective.unit for objective in self.objectives}
        return units.get(name, "")


@dataclass(frozen=True, slots=True)
class Session:
    """A process that writes a run.

    Attributes:
        command: the command line.
        versions: of libraries, plug-in packages and Python, by name.
        hardware: product name of the processor.
        workers: number of trainings at once.
    """

    command: str
    versions: Mapping[str, str]
    hardware: str
    workers: int = 1


@dataclass(frozen=True, slots=True)
class PastSession:
    """A recorded session; ``ended`` is None while the process writes, and if it was killed."""

    session: Session
    pid: int
    host: str
    started: datetime
    ended: datetime | None


@dataclass(frozen=True, slots=True)
class Proposal:
    """A genome that the search proposed, and whether it is trained.

    Attributes:
        number: index of the new mechanism or re-evaluation that it was drawn for, from 0.
        attempt: index of the draw for that number, from 0; the last one is trained.
        digest: of the normal form; commands show it as the mechanism's id.
        key: digest resolved at the task's sizes, equal for equal mechanisms; None if rejected.
        formula: the genome as one line of mathematics.
        operator: the operator that made it: "sample", "crossover", "mechanism", ...
        name: the name of a published mechanism, if it is one.
        parents: digests of the parent genomes.
        verdict: "new": trained for the first time; "repeated": a re-evaluation with another seed;
            "replayed": a duplicate, not trained; "rejected": not legal.
        note: the reason of a rejection.
        costs: by name, of all attention layers at the task's sizes; empty unless trained.
    """

    number: int
    attempt: int
    digest: str
    key: str | None
    genome: Genome
    formula: str
    operator: str
    name: str | None
    parents: tuple[str, ...]
    verdict: Verdict
    note: str = ""
    costs: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_new(self) -> bool:
        """Whether the run trains this mechanism for the first time."""
        return self.verdict == "new"

    @property
    def is_repeat(self) -> bool:
        """Whether it re-trains a known mechanism with another seed."""
        return self.verdict == "repeated"

    @property
    def is_trained(self) -> bool:
        """Whether it is to be trained."""
        return self.is_new or self.is_repeat


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of proposals by outcome.

    proposed = evaluated + repeated + replayed + rejected + those still to be trained. ``evaluated``
    counts mechanisms whose first trainings have ended, ``repeated`` re-evaluations, ``replayed``
    duplicates, ``failed`` mechanisms with a failed training, ``stopped`` those with one that missed
    a gate.
    """

    proposed: int = 0
    evaluated: int = 0
    repeated: int = 0
    replayed: int = 0
    rejected: int = 0
    failed: int = 0
    stopped: int = 0

    def __add__(self, other: Counts) -> Counts:
        """Sums of all counts."""
        return Counts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True, slots=True)
class Estimate:
    """Posterior estimates of a mechanism after a generation.

    Attributes:
        means: of each objective, by name, in its unit.
        errors: standard errors, by name; costs have none.
        p: probability that no trained mechanism dominates it.
        is_member: whether no other mechanism's means dominate its means.
    """

    key: str
    means: Mapping[str, float]
    errors: Mapping[str, float]
    p: float
    is_member: bool


@dataclass(frozen=True)
class Candidate:
    """Everything that a run recorded about one mechanism.

    Attributes:
        proposal: the first proposal of the mechanism that was trained; without one, the first.
        trainings: finished trainings of the search, by number of the repeat.
        estimate: estimate after the last generation; None before the first generation and if a
            training failed.
        num_repeats: number of trainings needed for a result.
    """

    proposal: Proposal
    trainings: tuple[Training, ...] = ()
    estimate: Estimate | None = None
    num_repeats: int = 1

    @property
    def digest(self) -> str:
        """The mechanism's id in commands."""
        return self.proposal.digest

    @property
    def key(self) -> str:
        """The digest resolved at the sizes of the run's task."""
        return str(self.proposal.key)

    @property
    def costs(self) -> Mapping[str, float]:
        """Costs by name."""
        return self.proposal.costs

    @property
    def evaluations(self) -> tuple[Evaluation, ...]:
        """The evaluations of its trainings."""
        return tuple(training.evaluation for training in self.trainings)

    @cached_property
    def status(self) -> CandidateStatus:
        """The combined status of its trainings.

        "failed" if a training failed, else "stopped" if one was stopped at a gate, else "waiting"
        until all have ended, then "ok". A proposal that is not trained is "duplicate" or
        "rejected".
        """
        if not self.proposal.is_new:
            return "rejected" if self.proposal.verdict == "rejected" else "duplicate"
        statuses = {evaluation.status for evaluation in self.evaluations}
        for status in ("failed", "stopped"):
            if status in statuses:
                return status
        return "ok" if len(self.trainings) >= self.num_repeats else "waiting"

    @property
    def is_ok(self) -> bool:
        """Whether all its trainings succeeded, so that it has a result."""
        return self.status == "ok"

    @property
    def is_estimated(self) -> bool:
        """Whether its metrics are estimates with standard errors."""
        return self.estimate is not None and bool(self.estimate.errors)

    @cached_property
    def _measured(self) -> dict[str, tuple[float, float | None]]:
        if not self.is_ok:
            return {}
        metrics = [evaluation.metrics for evaluation in self.evaluations]
        return {name: mean_and_error([row[name] for row in metrics]) for name in metrics[0]}

    @cached_property
    def scores(self) -> Mapping[str, float]:
        """Measured metrics by name: means over its trainings; empty unless ``is_ok``."""
        return {name: mean for name, (mean, _) in self._measured.items()}

    @cached_property
    def errors(self) -> Mapping[str, float]:
        """Standard errors of the metrics in ``objectives``, by name, where known."""
        if self.estimate is not None:
            return self.estimate.errors
        return {name: error for name, (_, error) in self._measured.items() if error is not None}

    @cached_property
    def objectives(self) -> Mapping[str, float]:
        """Costs and estimated metrics, or scores without an estimate; empty unless ``is_ok``."""
        if not self.is_ok:
            return {}
        return {**self.costs, **self.scores, **(self.estimate.means if self.estimate else {})}

    @property
    def p(self) -> float | None:
        """Probability that no trained mechanism dominates it; None without an estimate."""
        return None if self.estimate is None else self.estimate.p


@dataclass(frozen=True, slots=True)
class Generation:
    """The state of a run after a generation.

    Attributes:
        number: index, from 0.
        finished: time of the record.
        hypervolume: hypervolume of the run's front, by estimates.
        best: best estimate of the first objective, in its unit; None without any result.
        counts: counts of this generation only.
        front: digests of the run's front, best first objective first.
    """

    number: int
    finished: datetime
    hypervolume: float
    best: float | None
    counts: Counts
    front: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One line of the list of runs.

    Attributes:
        active: start of the last session.
        objective: the first objective, to which ``best`` belongs.
    """

    name: str
    folder: Path
    status: RunStatus
    space: str
    task: str
    algorithm: str
    seed: int
    started: datetime
    active: datetime
    generations_done: int
    generations: int
    counts: Counts
    objective: Objective
    best: float | None
    hypervolume: float | None
