"""Parse data specs, list the files of data directories, and read files.

Data may come from an untrusted source, so file names are checked before a file is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nas.common.config import near
from nas.common.errors import DataError
from nas.common.reading import open_regular


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


def expanded(path: str) -> Path:
    """Return a path without ~; raise DataError if there is no such user or home directory."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise DataError(f"{path}: there is no such user or home folder.") from None


def read_bytes(path: str | Path, ends: int | None = None) -> bytes:
    """Return the content of a file, or its first and last ``ends`` bytes with a space between them.

    Raises:
        DataError: the file cannot be read.
    """
    path = expanded(str(path))
    try:
        with open_regular(path) as file:
            if ends is None or os.fstat(file.fileno()).st_size <= 2 * ends:
                return file.read()
            first = file.read(ends)
            file.seek(-ends, os.SEEK_END)
            return first + b" " + file.read(ends)
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}); expected a text file."
        ) from None
    except MemoryError:
        raise DataError(
            f"{path}: its {path.stat().st_size:,} bytes do not fit into the memory; expected a "
            "smaller file."
        ) from None


def list_classes(
    root: Path, part: Sequence[str], suffixes: tuple[str, ...], noun: str, *, least: int = 1
) -> tuple[tuple[str, ...], list[list[Path]]]:
    """Return the sorted classes of a data directory, and the sorted files of each class.

    ``root/part`` contains a folder of files for each class. Hidden entries are ignored.

    Args:
        part: possible names of the folder ``part``, of which the first existing folder is read.
        suffixes: the suffixes of files to list, in lower case.
        noun: plural noun for the files in error messages.
        least: smallest number of files that each class must have.

    Raises:
        DataError: a folder is missing or cannot be read; there are fewer than two classes; a class
            has fewer than ``least`` files; a file name is not printable; or a file is a link to a
            place outside of the data.
    """
    expected = f"expected {part[0]}/ with a folder of {noun} for each class"
    if not root.is_dir():
        raise DataError(
            f"{root}: {'is a file' if root.exists() else 'there is no such folder'}; {expected}."
        )
    split = next((root / name for name in part if (root / name).is_dir()), None)
    if split is None:
        folders = " or ".join(f"{name}/" for name in part)
        raise DataError(f"{root}: holds no folder {folders}; {expected}.")
    classes = _names(split, lambda entry: entry.is_dir())
    if len(classes) < 2:
        count = f"one class, {classes[0]!r}" if classes else "no folders"
        raise DataError(f"{split}: holds {count}; expected at least two folders of {noun}.")
    files = []
    for folder in (split / name for name in classes):
        names = _names(folder, lambda entry: entry.name.lower().endswith(suffixes))
        if len(names) < least:
            raise DataError(
                f"{folder}: holds {len(names) or 'no'} {noun}; expected at least {least}, as files "
                f"such as *{suffixes[0]}."
            )
        files.append([folder / name for name in names])
    return tuple(classes), files


def _names(folder: Path, is_wanted: Callable[[os.DirEntry[str]], bool]) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(e.name for e in entries if not e.name.startswith(".") and is_wanted(e))
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror}).") from None
    for name in names:
        _check_name(folder, name)
    return names


def _check_name(folder: Path, name: str) -> None:
    path = folder / name
    if not name.isprintable():  # bytes that are not UTF-8, or control sequences of a terminal
        raise DataError(f"{folder}: {name!a} is no printable name; rename it.")
    # Path.resolve would raise for a cycle of links.
    root = os.path.dirname(os.path.realpath(folder))
    if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(root):
        raise DataError(
            f"{path}: is a link that leads out of the data; copy what it points to, or remove it."
        )
