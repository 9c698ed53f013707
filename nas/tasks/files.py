"""Parse data specs, list the files of data directories, and read files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nas.common.config import near
from nas.common.errors import DataError
from nas.common.system import open_regular
from nas.common.text import plural


def checked_spec(spec: str, kinds: Mapping[str, str]) -> str:
    """Return a data spec with an absolute path, so that a resumed search finds the same data.

    A path that begins with ~ is not changed, so that it is valid on another machine too.

    Args:
        spec: a kind of data, such as "digits", or a kind, a colon and a path or name.
        kinds: the possible kinds, each with the form of the text after the colon. "PATH" is a path;
            "NAME" is a name on the Hugging Face Hub, or a path that begins with . or /; and ""
            means that the spec is the kind alone.

    Raises:
        ValueError: the spec has another form.
    """
    kind, colon, rest = spec.partition(":")
    if kind not in kinds or bool(rest) != bool(kinds[kind]) or (colon and not rest):
        expected = " or ".join(f"{k}:{form}" if form else k for k, form in kinds.items())
        hint = "" if kind in kinds else near(kind, kinds)
        raise ValueError(f"found {spec!r}{hint}; expected {expected}")
    is_name = kinds[kind] == "NAME" and rest[0] not in "./"
    if not rest or is_name or rest.startswith("~"):
        return spec
    return f"{kind}:{os.path.abspath(rest)}"


def read_bytes(path: str | Path) -> bytes:
    """Return the content of a regular file, whose path may begin with ~.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        with open_regular(Path(path).expanduser()) as file:
            return file.read()
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}); expected a text file."
        ) from None


def list_classes(
    root: Path, part: Sequence[str], suffixes: tuple[str, ...], *, least: int = 1
) -> tuple[tuple[str, ...], list[list[Path]]]:
    """Return the sorted classes of a data directory, and the sorted files of each class.

    ``root/part`` contains a folder of files for each class. Hidden entries are ignored.

    Args:
        part: possible names of the folder ``part``, of which the first existing folder is read.
        suffixes: the suffixes of files to list, in lower case.
        least: smallest number of files that each class must have.

    Raises:
        DataError: a folder cannot be read; there are fewer than two classes; or a class has fewer
            than ``least`` files.
    """
    split = next((root / name for name in part if (root / name).is_dir()), root / part[0])
    expected = f"expected at least two folders of files such as *{suffixes[0]}, one for each class"
    try:
        classes = _paths(split, os.DirEntry.is_dir)
        files = [_paths(c, lambda entry: entry.name.lower().endswith(suffixes)) for c in classes]
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
        raise DataError(f"{error.filename}: {reason}; {expected}.") from None
    if len(classes) < 2:
        raise DataError(f"{split}: found {plural(len(classes), 'folder')}; {expected}.")
    for folder, own in zip(classes, files, strict=True):
        if len(own) < least:
            found = f"{plural(len(own), 'file')} *{suffixes[0]}"
            raise DataError(f"{folder}: found {found}; expected at least {least}.")
    return tuple(path.name for path in classes), files


def _paths(folder: Path, is_wanted: Callable[[os.DirEntry[str]], bool]) -> list[Path]:
    with os.scandir(folder) as entries:
        names = sorted(e.name for e in entries if not e.name.startswith(".") and is_wanted(e))
    return [folder / name for name in names]
