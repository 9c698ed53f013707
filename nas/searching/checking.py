"""Check a run's folder: a sentence for each fault, which says what helps. Changes nothing.

The database is read whole, then what lies beside it is compared with what it holds. Without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, get_args

from safetensors import SafetensorError, safe_open

from nas.common.errors import RunError
from nas.evaluation.trial import Purpose
from nas.searching.front_file import FRONT_FILE, front_content
from nas.store import front, is_checkpointed, open_run, weights_path
from nas.store.files import STAGING, leftovers, run_argument
from nas.store.lock import is_held
from nas.store.rows import DOCUMENTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nas.store import Run

SHOWN: Final = 3  # of faults of one kind


def check_run(folder: Path) -> list[str]:
    """What is wrong with a run; nothing where all is well.

    Of a run that is being written only the record is judged: the rest is on its way.

    Raises:
        RunError: there is no run.
    """
    try:
        with open_run(folder) as run, run.snapshot():
            found = [*_record(run)]
            if not is_held(folder):
                found += _beside(run)
    except RunError as error:
        return [str(error)]
    return found


def _record(run: Run) -> Iterator[str]:
    """Faults of the database; RunError where a record cannot be read at all."""
    if (fault := run.integrity()) != "ok":
        yield f"{run.folder}: its database is damaged ({fault}). Restore it from a copy."
    proposals = run.proposals()
    for purpose in get_args(Purpose):
        run.trainings(purpose)
    for read in (run.sessions, run.generations, run.summary, run.incidents):
        read()
    keys = {proposal.key for proposal in proposals if proposal.is_trained}
    for key in sorted({training.key for training in run.trainings("search")} - keys)[:SHOWN]:
        yield (
            f"{run.folder}: holds a training of {key}, which was never proposed. Restore the "
            "database from a copy."
        )
    known = {proposal.digest for proposal in proposals}
    lost = sorted({name for p in proposals for name in p.parents} - known)
    for name in lost[:SHOWN]:
        yield (
            f"{run.folder}: {name} was varied, but never proposed. Restore the database from a "
            "copy."
        )


def _beside(run: Run) -> Iterator[str]:
    """Faults of what lies beside the database."""
    folder, resume = run.folder, f"`nas resume {run_argument(run.folder)}`"
    if run.status == "finished" and not is_checkpointed(folder):
        yield f"{folder}: its log is not folded into run.sqlite; {resume} does it."
    path = folder / FRONT_FILE
    if run.generations() and not path.is_file():
        yield f"{path}: is missing; {resume} writes it."
    elif path.is_file() and path.read_bytes() != front_content(run):
        yield f"{path}: does not say what the record says; {resume} writes it again."
    for kind in DOCUMENTS:
        copy = folder / f"{kind}.yaml"
        text = getattr(run.setup, kind).text.encode("utf-8", "replace")
        if not copy.is_file() or copy.read_bytes() != text:
            yield (
                f"{copy}: is not the copy of what the record holds and goes by; `nas report "
                f"{run_argument(folder)} -o run.html` shows that."
            )
    yield from _weights(run)
    for left in (*leftovers(folder.parent, STAGING), *leftovers(folder)):
        yield f"{left}: was left unfinished by a process that was killed; it can be removed."


def _weights(run: Run) -> Iterator[str]:
    """Front members without their weights, in a run that keeps some."""
    paths = [weights_path(run.folder, str(member.proposal.key)) for member in front(run)]
    if not any(path.parent.is_dir() for path in paths):
        return
    for path in paths:
        try:
            if not path.is_file():
                raise FileNotFoundError
            with safe_open(path, framework="np") as file:
                file.keys()
        except (OSError, SafetensorError) as error:
            yield (
                f"{path}: holds no weights of this member of the front ({type(error).__name__}); "
                "its results stand, but `nas export --weights` cannot give them."
            )
