"""Events of a search, and the listeners that receive them.

Each event is sent after it is recorded on disk, so that ``kill -9`` loses no event that a listener
has received. Displays, logs and tests are listeners.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from nas.evaluation.trial import Evaluation, Incident
    from nas.store import Counts, Generation, Proposal, RunSetup

EndStatus: TypeAlias = Literal["finished", "exhausted", "interrupted"]


@dataclass(frozen=True, slots=True)
class Started:
    """The event that a process begins to write a run.

    Attributes:
        run: name of the run.
        workers: number of trainings that run at the same time.
        num_recorded: number of trainings that the run has recorded before; 0 in a new run.
    """

    run: str
    folder: Path
    setup: RunSetup
    workers: int
    num_recorded: int


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The event that a training has ended, with or without success.

    Attributes:
        generation: index of the generation of the proposal.
        repeat: index of the training among the trainings of the mechanism, from 0.
    """

    generation: int
    proposal: Proposal
    repeat: int
    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class GenerationDone:
    """The event that a generation is complete.

    Attributes:
        generation: the recorded generation; its counts cover this generation only.
        counts: numbers of proposals by outcome in all generations up to this one.
        is_replayed: whether all trainings of the generation had ended before this process resumed
            the run.
    """

    generation: Generation
    counts: Counts
    is_replayed: bool


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The state of a run at the end of a search.

    Attributes:
        run: name of the run.
        status: "finished", "exhausted" if the space has no further mechanism, or "interrupted".
        generations_done: number of complete generations.
        counts: numbers of all proposals of the run, by outcome.
        hypervolume: fraction of the box between the ideal and reference values that the front
            dominates.
        message: one or two sentences on how the search ended and how to resume it.
    """

    run: str
    folder: Path
    status: EndStatus
    generations_done: int
    counts: Counts
    hypervolume: float
    message: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data, with the folder as text."""
        return {**asdict(self), "folder": str(self.folder)}


class Listener:
    """Receives the events of a search. Every method does nothing by default.

    The process that writes the run calls one method at a time. An exception in a method ends the
    search; the run can be resumed.
    """

    def on_reference(self, done: int, total: int) -> None:
        """Called when a training of a reference mechanism has ended, before the search begins.

        Args:
            done: number of reference trainings that have ended.
            total: number of all reference trainings.
        """

    def on_start(self, event: Started) -> None:
        """Called when this process has opened the run for writing."""

    def on_evaluation(self, event: Evaluated) -> None:
        """Called when a training has ended."""

    def on_incident(self, event: Incident) -> None:
        """Called when a worker has failed."""

    def on_generation(self, event: GenerationDone) -> None:
        """Called when a generation is complete."""

    def on_end(self, event: SearchResult) -> None:
        """Called when the run is closed."""


class CompositeListener(Listener):
    """Passes every event to several listeners, in order."""

    def __init__(self, *listeners: Listener) -> None:
        for name in (name for name in vars(Listener) if name.startswith("on_")):
            setattr(self, name, _each([getattr(listener, name) for listener in listeners]))


def _each(methods: Sequence[Any]) -> Any:
    def call(*arguments: Any) -> None:
        for method in methods:
            method(*arguments)

    return call
