"""The front as plain data: the answer of ``nas front --json``, and front.json in the run folder.

Read from the record alone, without torch or pymoo. front.json is for people and other programs;
the database stays the truth.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nas.common.errors import RunError
from nas.store import front, front_hypervolume
from nas.store.files import typed, write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nas.store import Candidate, Run, RunSetup

FRONT_FILE: Final = "front.json"


def front_answer(run: Run, members: Sequence[Candidate] | None = None) -> dict[str, Any]:
    """The run's front with objectives, hypervolume and counts; the keys are stable.

    Args:
        members: of the front at this moment, where they are known.
    """
    with run.snapshot():
        setup, counts = run.setup, run.counts()
        members = front(run) if members is None else members
        names = ("proposed", "evaluated", "repeated", "replayed", "rejected", "failed")
        return {
            "run": run.name,
            "task": setup.task.name,
            "seed": setup.seed,
            "objectives": [
                {"name": o.name, "direction": o.direction, "unit": o.unit} for o in setup.objectives
            ],
            "reference_point": [o.reference for o in setup.objectives],
            "hypervolume": front_hypervolume(run, members),
            "counts": {name: getattr(counts, name) for name in names},
            "members": [_member(member, setup) for member in members],
            "space": setup.space.name,
            "algorithm": setup.algorithm,
            "ideal_point": [o.ideal for o in setup.objectives],
            "generations": len(run.generations()),
        }


def front_content(run: Run) -> bytes:
    """What front.json holds."""
    text = json.dumps(front_answer(run), indent=2, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode("utf-8", "backslashreplace")


def write_front(run: Run) -> Path:
    """Make front.json say what the record says: whole or not at all.

    Raises:
        RunError: the folder cannot be written.
    """
    path, content = run.folder / FRONT_FILE, front_content(run)
    try:
        if not path.is_file() or path.read_bytes() != content:
            write_whole(path, content)
    except OSError as error:
        raise RunError(
            f"{path}: cannot be written ({error.strerror}); the record in {run.folder} is whole, "
            f"`nas resume {typed(run.folder)}` goes on once there is space."
        ) from error
    return path


def _member(member: Candidate, setup: RunSetup) -> dict[str, Any]:
    names = [objective.name for objective in setup.objectives]
    return {
        "id": member.digest,
        "objectives": {name: member.objectives[name] for name in names},
        "genome": member.proposal.genome.to_dict(),
        "formula": member.proposal.formula,
        "standard_errors": {n: member.errors.get(n, 0.0) for n in names if member.errors},
        "scores": {n: member.scores[n] for n in names if n in member.scores},
        "repeats": member.trainings,
        "p_non_dominated": member.p,
    }
