"""What a run remembers, as plain frozen values: its setup, sessions, proposals and generations.

The evaluation itself is ``nas.evaluation.record.Evaluation``. Times are aware datetimes; texts of
space, policy and task are kept whole, so that a run explains itself without the repository.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from pathlib import Path

    from nas.evaluation.record import Objective
    from nas.genome import Genome

Outcome: TypeAlias = Literal["new", "replayed", "rejected"]
RunStatus: TypeAlias = Literal["running", "stopped", "finished"]

OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)


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

    Args:
        seed: the run seed, 0 <= seed < 2**63.
        generations: how many are wanted; a resumed run may raise it.
        repeats: trainings of each candidate, each with its own seed.
        objectives: what is optimised, in the order of every vector below.
        ideal_point, reference_point: the fixed ends of the hypervolume, in objectives' units.
        choices: how trainings are computed, measured at start and reused; JSON data, nothing in
            runs of older versions. See ``nas.evaluation.choices``.
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
    ideal_point: tuple[float, ...]
    reference_point: tuple[float, ...]
    choices: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert 0 <= self.seed < 2**63, self.seed
        assert len(self.objectives) == len(self.ideal_point) == len(self.reference_point)


@dataclass(frozen=True, slots=True)
class Session:
    """One process that writes a run: the one that began it, or one that resumed it.

    Args:
        command: the command line.
        versions: version by name, for example {"nas": "0.1", "torch": "2.9", "python": "3.11"}.
        processor: the processor that trains, as its maker calls it.
        workers: trainings at once.
    """

    command: str
    versions: Mapping[str, str]
    processor: str
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
    """A genome that the search proposed, and what became of it.

    Args:
        generation, position: when; both count from 0, positions within a generation.
        digest: of the canonical form; it names the mechanism to people.
        key: digest resolved at the task's sizes, what replay goes by; None if rejected before.
        formula: the genome as one line of mathematics.
        origin: the operator that made it, or where it was taken from.
        parents: digests of the genomes it was made from.
        outcome: "new" is trained, "replayed" had its result already, "rejected" is not legal.
        note: why it was rejected, or nothing.
    """

    generation: int
    position: int
    digest: str
    key: str | None
    genome: Genome
    formula: str
    origin: str
    parents: tuple[str, ...]
    outcome: Outcome
    note: str = ""

    def __post_init__(self) -> None:
        assert self.outcome in OUTCOMES, self.outcome
        assert self.key is not None or self.outcome == "rejected"


@dataclass(frozen=True, slots=True)
class Counts:
    """How many proposals there were and what became of them.

    proposed = evaluated + replayed + rejected + those still to be trained. ``evaluated`` counts
    candidates that are done: all repeats ended well, or one failed; ``failed`` counts the latter.
    """

    proposed: int = 0
    evaluated: int = 0
    replayed: int = 0
    rejected: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Generation:
    """The state after a generation.

    Args:
        number: counts from 0.
        started, finished: wall times; of the session that trained it, not of a later replay.
        hypervolume: of the run's front so far.
        best_accuracy: fraction; None while nothing has ended well, or if it is no objective.
        counts: of this generation alone.
        front: digests of the run's front so far, best first objective first.
    """

    number: int
    started: datetime
    finished: datetime
    hypervolume: float
    best_accuracy: float | None
    counts: Counts
    front: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A trained mechanism all of whose repeats ended well.

    Args:
        proposal: where it was first proposed.
        objectives: mean over the repeats by objective name.
        standard_errors: of these means, by objective name; empty with a single repeat.
        repeats: how many trainings the means are over.
    """

    proposal: Proposal
    objectives: Mapping[str, float]
    standard_errors: Mapping[str, float]
    repeats: int

    @property
    def digest(self) -> str:
        """The mechanism's name to people."""
        return self.proposal.digest


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One line of the list of runs; ``active`` is when a process last began to write it."""

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
    best_accuracy: float | None
    hypervolume: float | None
