"""What a run tells whoever watches it: plain frozen events, each sent after it is on the disk.

A display, a log or a test is a listener. It sees nothing that a ``kill -9`` could take back. What
it raises ends the command; the run can be gone on with.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

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
    """A training ended, well or not, and is recorded."""

    generation: int
    proposal: Proposal
    repeat: int
    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class GenerationDone:
    """A generation is complete.

    Attributes:
        generation: computed from the record, with its own counts.
        counts: of the run so far.
        is_replayed: it was complete in the record already.
    """

    generation: Generation
    counts: Counts
    is_replayed: bool


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The process leaves the run.

    Attributes:
        message: what happened and how to go on, in a sentence or two.
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
    """Watches a run, and here does nothing: subclass it to hear some events.

    Called from the process that writes the run, one call at a time.
    """

    def on_reference(self, done: int, total: int) -> None:
        """One of so many trainings that regrets will be relative to has ended."""

    def on_start(self, event: Started) -> None:
        """The run is open."""

    def on_evaluation(self, event: Evaluated) -> None:
        """A training ended."""

    def on_incident(self, event: Incident) -> None:
        """Something befell a machine."""

    def on_generation(self, event: GenerationDone) -> None:
        """A generation is complete."""

    def on_end(self, event: SearchResult) -> None:
        """The run is closed."""


class CompositeListener(Listener):
    """Several listeners, told in order."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners = listeners

    def on_reference(self, done: int, total: int) -> None:
        """Tell all."""
        for one in self._listeners:
            one.on_reference(done, total)

    def on_start(self, event: Started) -> None:
        """Tell all."""
        for one in self._listeners:
            one.on_start(event)

    def on_evaluation(self, event: Evaluated) -> None:
        """Tell all."""
        for one in self._listeners:
            one.on_evaluation(event)

    def on_incident(self, event: Incident) -> None:
        """Tell all."""
        for one in self._listeners:
            one.on_incident(event)

    def on_generation(self, event: GenerationDone) -> None:
        """Tell all."""
        for one in self._listeners:
            one.on_generation(event)

    def on_end(self, event: SearchResult) -> None:
        """Tell all."""
        for one in self._listeners:
            one.on_end(event)
