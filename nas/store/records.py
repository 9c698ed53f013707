"""What a run remembers, as plain frozen values: its setup, sessions, proposals and candidates.

The evaluation of a trial is ``nas.evaluation.trial.Evaluation``. Times are aware datetimes; texts
of space, policy and task are kept whole, so that a run explains itself without the repository.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from pathlib import Path

    from nas.common.objectives import Objective
    from nas.evaluation.trial import Evaluation
    from nas.genome import Genome

Verdict: TypeAlias = Literal["new", "repeated", "replayed", "rejected"]
RunStatus: TypeAlias = Literal["running", "stopped", "finished"]
Part: TypeAlias = Literal["search", "long", "test"]


@dataclass(frozen=True, slots=True)
class Document:
    """A space, policy or task as it was when the run began: its name, YAML text, fingerprint."""

    name: str
    text: str
    fingerprint: str

    @classmethod
    def of(cls, name: str, text: str) -> Document:
        """Fingerprint the text itself; a task has a better one of its own, data included."""
        return cls(name, text, hashlib.sha256(text.encode()).hexdigest()[:16])


@dataclass(frozen=True, slots=True)
class RunSetup:
    """All that decides what a run finds, fixed when it begins.

    Attributes:
        seed: the run seed, 0 <= seed < 2**63.
        population: new candidates a generation.
        generations: how many are wanted; a resumed run may raise it.
        lag: proposal t is computed from the results of the proposals up to t - lag; None for a
            generation: from all results of earlier generations.
        repeats: trainings of each candidate, each with its own seed.
        objectives: what is optimised, in the order of every vector of costs.
        calibration: unit times behind predicted times, as JSON data; empty where no objective asks.
    """

    seed: int
    space: Document
    policy: Document
    task: Document
    algorithm: str
    population: int
    generations: int
    repeats: int
    objectives: tuple[Objective, ...]
    lag: int | None = None
    calibration: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Session:
    """One process that writes a run: the one that began it, or one that resumed it.

    Attributes:
        command: the command line.
        versions: by name of a library or a package of plug-ins, Python's among them.
        hardware: the machine's processor, as its maker calls it.
        workers: trainings at once.
    """

    command: str
    versions: Mapping[str, str]
    hardware: str
    workers: int = 1


@dataclass(frozen=True, slots=True)
class PastSession:
    """A session as recorded; ``ended`` is None while it writes, and after it was killed."""

    session: Session
    pid: int
    host: str
    started: datetime
    ended: datetime | None


@dataclass(frozen=True, slots=True)
class Proposal:
    """A genome that the search proposed, and the judgement on it.

    Attributes:
        number: the proposal that it was drawn for, from 0: the how-manieth new mechanism.
        attempt: the how-manieth draw for that number, from 0; the last is the new one.
        digest: of the normal form; it names the mechanism to people.
        key: digest resolved at the task's sizes, what replay goes by; None if rejected before.
        formula: the genome as one line of mathematics.
        operator: what made it: "sample", "crossover", "mechanism", ...
        name: of the mechanism, where it is a named one.
        parents: digests of the genomes it was made from.
        verdict: "new" is trained, "repeated" a known one trained with another seed; "replayed" had
            its result already, "rejected" is not legal.
        note: why it was rejected, or nothing.
        costs: by name, of all attention layers at the task's sizes; empty unless new.
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
        """Whether it trains a mechanism that is known, with another seed."""
        return self.verdict == "repeated"

    @property
    def is_trained(self) -> bool:
        """Whether it is to be trained."""
        return self.is_new or self.is_repeat


@dataclass(frozen=True, slots=True)
class PastTraining:
    """A training of the search that ended: of which mechanism, the how-manieth, and when."""

    key: str
    repeat: int
    recorded: datetime
    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class Counts:
    """How many proposals there were and what became of them.

    proposed = evaluated + repeated + replayed + rejected + those still to be trained. ``evaluated``
    counts mechanisms whose first trainings have ended, ``repeated`` further trainings of one,
    ``failed`` mechanisms of which a training failed, ``stopped`` those of which one missed a gate.
    """

    proposed: int = 0
    evaluated: int = 0
    repeated: int = 0
    replayed: int = 0
    rejected: int = 0
    failed: int = 0
    stopped: int = 0

    def __add__(self, other: Counts) -> Counts:
        """Counts of both together."""
        return Counts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True, slots=True)
class Estimate:
    """What was believed of a mechanism when a generation had ended.

    Attributes:
        means: of each objective, by name, in its unit.
        errors: their standard errors, by name; nothing for costs, which are known.
        p: how likely nothing that was trained dominates it.
        is_member: whether no other one's means dominate its own.
    """

    key: str
    means: Mapping[str, float]
    errors: Mapping[str, float]
    p: float
    is_member: bool


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A training with a fresh seed, which the search never learns from.

    Attributes:
        part: "search" is trained under the run's own task, "long" under a longer one, and "test"
            is judged on the test set.
        task: fingerprint of task and data.
        key: of the mechanism, resolved at the sizes of the run's own task.
        name: of the mechanism, where it is a named one.
        repeat: the how-manieth of its part, from 0; each has one seed for all mechanisms.
    """

    part: Part
    task: str
    task_name: str
    key: str
    name: str | None
    repeat: int
    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class Candidate:
    """A trained mechanism all of whose trainings ended well.

    Attributes:
        objectives: by name: metrics as believed, or as measured where nothing is believed yet;
            and costs.
        errors: of the metrics, by name.
        scores: metrics as measured, by name: means over its trainings.
        trainings: how many the scores are means over.
        p: how likely nothing that was trained dominates it; None until a generation has ended.
    """

    proposal: Proposal
    objectives: Mapping[str, float]
    errors: Mapping[str, float]
    scores: Mapping[str, float]
    trainings: int
    p: float | None

    @property
    def digest(self) -> str:
        """The mechanism's name to people."""
        return self.proposal.digest


@dataclass(frozen=True, slots=True)
class Generation:
    """How a run stood after a generation.

    Attributes:
        number: counts from 0.
        finished: when its last evaluation was recorded.
        hypervolume: of the run's front, by estimates.
        best: of the first objective, by estimates, in its unit; None while nothing ended well.
        counts: of this generation alone.
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
    """One line of the list of runs; ``active`` is when a process last began to write it.

    Attributes:
        objective: the first one, which ``best`` is of.
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
