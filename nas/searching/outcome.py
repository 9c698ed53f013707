"""How a process leaves a run, in the words that a person reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nas.searching.listener import Ended
from nas.searching.proposing import MAX_ATTEMPTS
from nas.store import RUNS, front, front_hypervolume

if TYPE_CHECKING:
    from nas.searching.listener import EndStatus
    from nas.store import Run

LOST: Final = "worker_lost"


def ended(run: Run, status: EndStatus) -> Ended:
    """The event that ends this process's work, as the record stands."""
    num_trained, num_done = run.counts().evaluated, len(run.generations())
    generations = "1 generation" if num_done == 1 else f"{num_done} generations"
    message = {
        "finished": f"Done: {generations}, {num_trained} mechanisms.",
        "exhausted": f"The space is exhausted: {MAX_ATTEMPTS} attempts in a row gave no mechanism "
        f"that was new; {num_trained} were trained.",
        "interrupted": f"Interrupted in generation {num_done + 1}; every finished "
        f"training is kept. `nas resume {_source(run)}` goes on.",
    }[status]
    return _event(run, status, message)


def complete(run: Run, generations: int | None) -> Ended | None:
    """The end of a run in which nothing is left to do; None if there is.

    Args:
        generations: how many the run shall have; None for what it was begun with.
    """
    is_exhausted = run.is_exhausted
    wanted = max(run.setup.generations, generations or 0)
    is_short = len(run.generations()) < wanted and not is_exhausted
    if run.status != "finished" or is_short or LOST in run.ended().values():
        return None
    if is_exhausted:
        return _event(run, "exhausted", f"Run {run.name} is complete. {run.note}")
    return _event(
        run,
        "finished",
        f"Run {run.name} is complete with {wanted} generations; "
        f"`nas resume {_source(run)} --gens N` with more of them goes on.",
    )


def _event(run: Run, status: EndStatus, message: str) -> Ended:
    return Ended(
        run=run.name,
        folder=run.folder,
        status=status,
        generations_done=len(run.generations()),
        counts=run.counts(),
        hypervolume=front_hypervolume(run, front(run)),
        message=message,
    )


def _source(run: Run) -> str:
    """What to type for this run."""
    return run.name if run.folder.parent.resolve() == RUNS.resolve() else str(run.folder)
