"""What a run tells whoever watches it: plain frozen events, each sent after it is on the disk.

A display, a log or a test is a listener. It sees nothing that a ``kill -9`` could take back, and
what it does cannot change the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

    from nas.evaluation.trial import Evaluation
    from nas.store import Counts, Generation, Proposal, RunSetup

EndStatus: TypeAlias = Literal["finished", "exhausted", "interrupted"]


@dataclass(frozen=True, slots=True)
class Started:
    """A process begins to write a run.

    Args:
        num_recorded: evaluations that the record already holds; 0 in a new run.
    """

    run: str
    folder: Path
    setup: RunSetup
    workers: int
    num_recorded: int


@dataclass(frozen=True, slots=True)
class GenerationStarted:
    """The first trainings of a generation begin; with a lag, maybe before the last one has ended.

    Args:
        to_train: trainings to do now, of the whole generation.
        recorded: trainings of it that the record holds, done before the run was interrupted.
    """

    number: int
    to_train: int
    recorded: int


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A training ended and is recorded.

    Args:
        done, to_train: how many of the generation's trainings are done, of how many.
    """

    generation: int
    proposal: Proposal
    repeat: int
    evaluation: Evaluation
    done: int
    to_train: int


@dataclass(frozen=True, slots=True)
class GenerationDone:
    """A generation is complete.

    Args:
        generation: computed from the record, with its own counts.
        counts: of the run so far.
        is_replayed: it was complete in the record already.
    """

    generation: Generation
    counts: Counts
    is_replayed: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """The process leaves the run.

    Args:
        message: what happened and how to go on, in a sentence or two.
    """

    run: str
    folder: Path
    status: EndStatus
    generations_done: int
    counts: Counts
    hypervolume: float
    message: str


class Listener(Protocol):
    """Watches a run. Called from the process that writes it, one call at a time."""

    def on_start(self, event: Started) -> None:
        """The run is open."""
        ...

    def on_generation_start(self, event: GenerationStarted) -> None:
        """Its trainings begin."""
        ...

    def on_evaluation(self, event: Evaluated) -> None:
        """A training ended, well or not."""
        ...

    def on_generation(self, event: GenerationDone) -> None:
        """A generation is complete."""
        ...

    def on_end(self, event: Ended) -> None:
        """The run is closed."""
        ...


class Silent:
    """A listener that does nothing; subclass it to hear some events only."""

    def on_start(self, event: Started) -> None:
        """Do nothing."""

    def on_generation_start(self, event: GenerationStarted) -> None:
        """Do nothing."""

    def on_evaluation(self, event: Evaluated) -> None:
        """Do nothing."""

    def on_generation(self, event: GenerationDone) -> None:
        """Do nothing."""

    def on_end(self, event: Ended) -> None:
        """Do nothing."""
