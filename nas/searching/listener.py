"""Events of a search, each sent after it is recorded on disk, and listeners that receive them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from nas.evaluation.trial import Evaluation, Incident
    from nas.store.records import Counts, Generation, Proposal, RunSetup

EndStatus: TypeAlias = Literal["finished", "exhausted", "interrupted"]


@dataclass(frozen=True, slots=True)
class Started:
    """The event that a process begins to write a run."""

    run: str
    folder: Path
    setup: RunSetup
    workers: int  # trainings that run at the same time
    num_recorded: int  # trainings of earlier sessions


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The event that a training has ended."""

    generation: int  # index of the generation of the proposal
    proposal: Proposal
    repeat: int  # index among the trainings of the mechanism
    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class GenerationDone:
    """The event that a generation is complete."""

    generation: Generation
    is_replayed: bool  # all its trainings had ended before this process resumed the run


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The state of a run at the end of a search.

    ``status`` is "exhausted" if the space has no further mechanism. ``hypervolume`` is the fraction
    of the box between the ideal and the reference values that the front dominates. ``message`` says
    how the search ended and how to resume it.
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

    An exception in a method ends the search; the run can be resumed.
    """

    def on_reference(self, done: int, total: int) -> None:
        """Called when one of the reference trainings, before the search begins, has ended."""

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
            setattr(self, name, partial(_call, [getattr(one, name) for one in listeners]))


def _call(methods: Sequence[Any], *arguments: Any) -> None:
    for method in methods:
        method(*arguments)
