"""Create, list and find run folders.

The folder of a run is ``runs/<date>_<space>_s<seed>/`` by default. It holds run.sqlite, which is
the only source of truth, and copies of the space, its policy (path rules) and the task for people.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from itertools import chain, count
from pathlib import Path
from typing import Final

from nas.common.config import near
from nas.common.errors import RunError
from nas.store import lock
from nas.store.files import RUNS, run_argument, staging_for, sync_folder
from nas.store.records import RunSetup, RunSummary, Session, utc_now
from nas.store.run import DATABASE_FILE, Run, open_run
from nas.store.writer import Clock, RunWriter, open_writer

LATEST: Final = "latest"
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


def create_run(
    root: Path, setup: RunSetup, session: Session, name: str | None = None, clock: Clock = utc_now
) -> RunWriter:
    """Create a run folder in the folder of all runs, and open it for writing.

    By default the name consists of date, space and seed, and of a suffix _2, _3, ... if such a
    folder exists. RunError is raised if the name exists or is not valid, or if writing fails.
    """
    if name is not None:
        check_name(name, root)
    try:
        folder = _make(root, setup, session, _names(setup, session) if name is None else [name])
    except OSError as error:
        raise RunError(f"{root}: no run can be made here ({error.strerror}).") from error
    return open_writer(folder, session, clock=clock)


def check_name(name: str, root: Path) -> None:
    """Raise RunError if a name exists in a folder of runs or is not a valid name of a run."""
    if name == LATEST or not NAME.fullmatch(name):
        raise RunError(
            f"{name[:100]!r} cannot name a run; expected letters, digits and . _ + - (at most 100, "
            f"the first a letter or digit), and not {LATEST!r}, which means the newest."
        )
    if os.path.lexists(root / name):
        raise _existing(root / name)


def list_runs(root: Path = RUNS) -> tuple[list[RunSummary], list[RunError]]:
    """Return summaries of all runs, the last active last, and the errors of unreadable runs."""
    summaries: list[RunSummary] = []
    problems: list[RunError] = []
    for folder in _run_folders(root):
        try:
            with open_run(folder) as run:
                summaries.append(run.summary())
        except RunError as error:
            problems.append(error)
    return sorted(summaries, key=lambda run: (run.active, run.name)), problems


def find_run(source: str, root: Path = RUNS) -> Path:
    """Return the folder of a run; raise RunError if there is no such run.

    ``source`` is the name of a run in ``root``, the path of a run folder or its database, or
    "latest", the run that a process began to write last.
    """
    folders = _run_folders(root)
    if source == LATEST:
        if not folders:
            raise RunError(f"{root}: holds no run yet; `nas search` makes one.")
        return max(folders, key=lock.last_acquired)
    path = Path(source)
    for folder in (root / source, path, path.parent if path.name == DATABASE_FILE else path):
        if source and os.path.isfile(folder / DATABASE_FILE):  # False for a name that is too long
            return folder
    names = [folder.name for folder in folders]
    raise RunError(
        f"{source[:100]!r}: there is no such run in {root}{near(source, names)}; expected a path, "
        f"{LATEST} or a name. `nas runs` lists all."
    )


def _make(root: Path, setup: RunSetup, session: Session, names: Iterable[str]) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    staging = staging_for(root / "run")
    staging.mkdir()
    try:
        for kind in ("space", "policy", "task", "target"):
            if document := getattr(setup, kind):
                copy = staging / f"{kind}.yaml"
                copy.write_text(document.text, encoding="utf-8", errors="replace")
        with Run.create(staging / DATABASE_FILE) as run, run.transaction():
            run.insert("run", setup)
            run.insert("sessions", session)
        target = _rename(staging, names)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    sync_folder(root)
    return target


def _rename(staging: Path, names: Iterable[str]) -> Path:
    for name in names:
        target = staging.with_name(name)
        try:
            if not os.path.lexists(target):
                return staging.rename(target)
        except OSError:  # another process may have created the target meanwhile
            if not os.path.lexists(target):
                raise
    raise _existing(target)


def _names(setup: RunSetup, session: Session) -> Iterable[str]:
    space = re.sub(r"[^A-Za-z0-9._+]+", "-", setup.space.name).strip("-.")[:60] or "space"
    base = f"{session.started.astimezone():%Y-%m-%d}_{space}_s{setup.config.seed}"
    return chain([base], (f"{base}_{i}" for i in count(2)))


def _existing(folder: Path) -> RunError:
    return RunError(
        f"{folder}: exists already; `nas resume {run_argument(folder)}` goes on with it, or choose "
        "another name."
    )


def _run_folders(root: Path) -> list[Path]:
    files = sorted(root.glob(f"[!.]*/{DATABASE_FILE}"))
    return [file.parent for file in files if file.is_file()]
