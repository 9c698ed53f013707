"""Check a run's folder without changing it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from nas.common.errors import RunError
from nas.evaluation.trial import Purpose
from nas.searching.front_file import FRONT_FILE, run_answer
from nas.store import Run, open_run, weights_path
from nas.store.files import run_argument
from nas.store.frozen import load_frozen_task
from nas.store.lock import is_held
from nas.store.weights import read_weights


def check_run(folder: Path) -> list[str]:
    """Return the faults of a run, as sentences that say what to do.

    While another process writes the run, only faults of the database are returned.
    """
    try:
        with open_run(folder) as run, run.snapshot():
            faults = [*_database_faults(run)]
            if not is_held(folder):
                faults += _folder_faults(run)
    except RunError as error:
        return [str(error)]
    return faults


def _database_faults(run: Run) -> Iterator[str]:
    if (fault := run.integrity()) != "ok":
        yield f"{run.folder}: its database is damaged ({fault}). Restore the database from a copy."
    run.trainings(*get_args(Purpose))  # raises RunError if a record cannot be read
    for read in (run.proposals, run.candidates, run.sessions, run.generations, run.incidents):
        read()
    run.answers()


def _folder_faults(run: Run) -> Iterator[str]:
    folder, resume = run.folder, f"`nas resume {run_argument(run.folder)}`"
    path = folder / FRONT_FILE
    if run.generations() and not path.is_file():
        yield f"{path}: is missing; {resume} writes it."
    elif path.is_file() and not _is_same_front(path, run_answer(run)):
        yield f"{path}: does not say what the record says; {resume} writes it again."
    yield from _weights_faults(run)


def _is_same_front(path: Path, answer: Mapping[str, Any]) -> bool:
    # Other entries are not compared, since a run may be renamed or written by another version.
    try:
        members = json.loads(path.read_bytes())["members"]
        written = [(member["id"], member["objectives"]) for member in members]
    except (OSError, ValueError, LookupError, TypeError):
        return False
    return written == [(member["id"], member["objectives"]) for member in answer["members"]]


def _weights_faults(run: Run) -> Iterator[str]:
    members = {weights_path(run.folder, member.key): member for member in run.front()}
    if not any(path.parent.is_dir() for path in members):
        return
    task = load_frozen_task(run.setup.front_task).main
    for path, member in members.items():
        try:
            read_weights(path, member.proposal.genome, task)
        except RunError as error:
            yield f"{error} Its results stand, but `nas export --weights` cannot give its weights."
