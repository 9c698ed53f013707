"""Create, list and find run folders.

``runs/<date>_<space>_s<seed>/`` holds run.sqlite, the only source of truth, and copies of
space, policy and task for people. A new folder is created under a temporary name and renamed when
it is complete.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import uuid
from collections.abc import Iterable
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nas.common.config import near
from nas.common.errors import RunError
from nas.store import rows
from nas.store.files import RUNS, STAGING, run_argument, sweep
from nas.store.run import DATABASE_FILE, open_run
from nas.store.writer import RunWriter, open_writer, utc_now, write_setup

if TYPE_CHECKING:
    from nas.store.records import RunSetup, RunSummary, Session
    from nas.store.writer import Clock

LATEST: Final = "latest"
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


def create_run(
    root: Path, setup: RunSetup, session: Session, name: str | None = None, clock: Clock = utc_now
) -> RunWriter:
    """Create a run folder and open it for writing.

    Args:
        root: the folder of runs; created if missing.
        name: the folder's name; by default date, space and seed, with _2, _3, ... if taken.
        clock: returns an aware time; the date in the name is local.

    Raises:
        RunError: the name is taken or not valid, or the folder cannot be written.
    """
    now = clock()
    if name is not None:
        check_name(name, root)
    try:
        folder = _make(root, setup, _names(setup, now) if name is None else [name], now)
    except OSError as error:
        raise RunError(
            f"{root}: no run can be made here ({error.strerror}); choose a folder that you may "
            "write to, on a disk that is not full."
        ) from error
    return open_writer(folder, session, clock=clock)


def check_name(name: str, root: Path) -> None:
    """Check that a run can have this name.

    Raises:
        RunError: the name is taken or not valid.
    """
    if name == LATEST or not NAME.fullmatch(name):
        raise RunError(
            f"{_shown(name)} cannot name a run; expected letters, digits and . _ + - (at most 100, "
            f"the first a letter or digit), and not {LATEST!r}, which means the newest."
        )
    if os.path.lexists(root / name):
        raise _taken(root, [name])


def list_runs(root: Path = RUNS) -> tuple[list[RunSummary], list[RunError]]:
    """The runs in a folder, last active last, and the errors of those that cannot be read."""
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
    """The folder of a run given by name, by path, or as ``latest``.

    Raises:
        RunError: there is no such run; the message lists similar and recent names.
    """
    if source == LATEST:
        runs, _ = list_runs(root)
        if not runs:
            raise RunError(f"{root}: holds no run yet; `nas search` makes one.")
        return runs[-1].folder
    path = Path(source)
    for folder in (root / source, path, path.parent if path.name == DATABASE_FILE else path):
        if source and _is_file(folder / DATABASE_FILE):
            return folder
    names = [folder.name for folder in _run_folders(root)]
    recent = ", ".join(names[-8:]) or "none yet"
    raise RunError(
        f"{_shown(source)}: there is no such run in {root}{near(source, names)}; expected a path, "
        f"{LATEST} or a name (the last ones: {recent}). `nas runs` lists all."
    )


def split_member(source: str) -> tuple[str, str]:
    """Split RUN/ID into run and member; the run may be a path.

    Raises:
        RunError: there is no slash, or a side of it is empty.
    """
    run, slash, member = source.rpartition("/")
    if not (run and slash and member):
        raise RunError(
            f"{_shown(source)}: expected RUN/ID, for example {LATEST}/best; ID is the beginning of "
            "a digest or one of best, knee, cheapest."
        )
    return run, member


def _make(root: Path, setup: RunSetup, names: Iterable[str], now: datetime) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    sweep(root, STAGING)  # all other files in this folder are the user's
    staging = root / f"{STAGING}{uuid.uuid4().hex}"
    staging.mkdir()
    try:
        for kind in rows.DOCUMENTS:
            text = getattr(setup, kind).text
            (staging / f"{kind}.yaml").write_text(text, encoding="utf-8", errors="replace")
        write_setup(staging / DATABASE_FILE, setup, now)
        target = _rename(staging, root, names)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    with contextlib.suppress(OSError):  # some systems synchronise no folder
        handle = os.open(root, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
    return target


def _rename(staging: Path, root: Path, names: Iterable[str]) -> Path:
    for name in names:
        target = root / name
        if os.path.lexists(target):
            continue
        try:
            staging.rename(target)
        except OSError as error:
            # Another process was quicker.
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
                raise
            continue
        return target
    raise _taken(root, names)


def _names(setup: RunSetup, now: datetime) -> Iterable[str]:
    space = re.sub(r"[^A-Za-z0-9._+]+", "-", setup.space.name).strip("-.")[:60] or "space"
    base = f"{now.astimezone():%Y-%m-%d}_{space}_s{setup.config.seed}"
    return chain([base], (f"{base}_{i}" for i in count(2)))


def _taken(root: Path, names: Iterable[str]) -> RunError:
    name = next(iter(names))
    return RunError(
        f"{root / name}: exists already; `nas resume {run_argument(root / name)}` goes on with it, "
        "or choose another name."
    )


def _shown(source: str) -> str:
    return repr(source if len(source) <= 80 else f"{source[:77]}...")


def _run_folders(root: Path) -> list[Path]:
    try:
        entries = sorted(root.iterdir())
    except OSError:
        return []
    return [e for e in entries if not e.name.startswith(".") and _is_file(e / DATABASE_FILE)]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
