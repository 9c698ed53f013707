"""Events of a run: frozen values, each sent after it was recorded on disk.

Displays, logs and tests are listeners. No event that they receive is lost by ``kill -9``. An
exception in a listener ends the command; the run can be resumed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from nas.evaluation.trial import Evaluation, Incident
    from nas.store import Counts, Generation, Proposal, RunSetup

EndStatus: TypeAlias = Literal["finished", "exhausted", "interrupted"]


@dataclass(frozen=True, slots=True)
class Started:
    """A process begins to write a run.

    Attributes:
        num_recorded: evaluations that the record already holds; 0 in a new run.
    """

    run: str
    folder: Path
    setup: RunSetup
    workers: int
    num_recorded: int


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A training ended, successfully or not, and is recorded."""

    generation: int
    proposal: Proposal
    repeat: int
    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class GenerationDone:
    """A generation is complete.

    Attributes:
        generation: read from the record; its counts are those of this generation.
        counts: counts of the run so far.
        is_replayed: whether the record already held the complete generation.
    """

    generation: Generation
    counts: Counts
    is_replayed: bool


@dataclass(frozen=True, slots=True)
class SearchResult:
    """How a search ended.

    Attributes:
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
        """Plain data; the folder as text."""
        return {**asdict(self), "folder": str(self.folder)}


class Listener:
    """Receives the events of a run; every method does nothing by default.

    Called by the process that writes the run, one call at a time.
    """

    def on_reference(self, done: int, total: int) -> None:
        """A reference training of a suite has ended."""

    def on_start(self, event: Started) -> None:
        """The run is open."""

    def on_evaluation(self, event: Evaluated) -> None:
        """A training has ended."""

    def on_incident(self, event: Incident) -> None:
        """A worker has failed."""

    def on_generation(self, event: GenerationDone) -> None:
        """A generation is complete."""

    def on_end(self, event: SearchResult) -> None:
        """The run is closed."""


class CompositeListener(Listener):
    """Passes every event to several listeners, in order."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners = listeners

    def on_reference(self, done: int, total: int) -> None:
        """Pass on."""
        for listener in self._listeners:
            listener.on_reference(done, total)

    def on_start(self, event: Started) -> None:
        """Pass on."""
        for listener in self._listeners:
            listener.on_start(event)

    def on_evaluation(self, event: Evaluated) -> None:
        """Pass on."""
        for listener in self._listeners:
            listener.on_evaluation(event)

    def on_incident(self, event: Incident) -> None:
        """Pass on."""
        for listener in self._listeners:
            listener.on_incident(event)

    def on_generation(self, event: GenerationDone) -> None:
        """Pass on."""
        for listener in self._listeners:
            listener.on_generation(event)

    def on_end(self, event: SearchResult) -> None:
        """Pass on."""
        for listener in self._listeners:
            listener.on_end(event)
