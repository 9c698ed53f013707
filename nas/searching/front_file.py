"""The front of a run as JSON, as ``nas front --json`` prints it, and the check of a run's files.

The file front.json is for people and other programs; nas itself never reads a run from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, get_args

from nas.common.errors import RunError
from nas.evaluation.trial import Purpose
from nas.store import Counts, Run, RunSetup, open_run
from nas.store.files import write_file
from nas.store.frozen import load_frozen_task
from nas.store.lock import is_held
from nas.store.weights import read_weights, weights_path

FRONT_FILE: Final = "front.json"


def front_answer(
    name: str,
    setup: RunSetup,
    members: Sequence[Any],
    counts: Counts,
    hypervolume: float,
    generations: int,
) -> dict[str, Any]:
    """Return a front as JSON data; ``members`` are sorted by the first objective, best first."""
    names = ("proposed", "evaluated", "repeated", "replayed", "rejected", "failed")
    return {
        "run": name,
        "task": setup.front_task.name,
        "seed": setup.config.seed,
        "objectives": [
            {"name": o.name, "direction": o.direction, "unit": o.unit} for o in setup.objectives
        ],
        "reference_point": [o.corner for o in setup.objectives],
        "hypervolume": hypervolume,
        "counts": {name: getattr(counts, name) for name in names},
        "members": [_member(member, setup) for member in members],
        "space": setup.space.name,
        "algorithm": setup.config.algorithm,
        "ideal_point": [o.ideal for o in setup.objectives],
        "generations": generations,
    }


def run_answer(run: Run) -> dict[str, Any]:
    """Return the front of a run as JSON data."""
    with run.snapshot():
        members = run.front()
        volume = run.hypervolume(members)
        generations = len(run.generations())
        return front_answer(run.name, run.setup, members, run.counts(), volume, generations)


def write_front(run: Run) -> Path:
    """Write the file front.json from a run's database, atomically, and return its path.

    Raises:
        RunError: the folder cannot be written.
    """
    text = json.dumps(run_answer(run), indent=2, ensure_ascii=False, allow_nan=False)
    path, content = run.folder / FRONT_FILE, f"{text}\n".encode("utf-8", "backslashreplace")
    if not path.is_file() or path.read_bytes() != content:
        write_file(path, content)
    return path


def _member(member: Any, setup: RunSetup) -> dict[str, Any]:
    names = [objective.name for objective in setup.objectives]
    return {
        "id": member.digest,
        "objectives": {name: member.objectives[name] for name in names},
        "genome": member.proposal.genome.to_dict(),
        "formula": member.proposal.formula,
        "standard_errors": {n: member.errors.get(n, 0.0) for n in names if member.errors},
        "scores": {n: member.scores[n] for n in names if n in member.scores},
        "repeats": len(member.scored),
        "p_non_dominated": member.p,
    }


def check_run(folder: Path) -> list[str]:
    """Return the faults of a run, as sentences that say what to do.

    While another process writes the run, only faults of the database are returned.
    """
    try:
        with open_run(folder) as run, run.snapshot():
            faults = [*_database_faults(run)]
            if not is_held(folder):
                faults += _weights_faults(run)
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
