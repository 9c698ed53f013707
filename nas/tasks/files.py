"""Parse data specs, list the files of data directories, and read files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from nas.common.config import near
from nas.common.errors import DataError, NasWarning
from nas.common.text import plural

TRAIN: Final = "train"
TESTS: Final = ("test", "val", "valid")
UNLABELLED: Final = "unsup"  # the folder of the IMDB reviews without labels


def checked_spec(spec: str, kinds: Mapping[str, str]) -> str:
    """Return a data spec with an absolute path; raise ValueError if its form is unknown.

    A path that begins with ~ is not changed, so that it is valid on another machine too. ``kinds``
    are the possible kinds of data, each with the form of the text after its colon, "PATH" or "".
    """
    kind, colon, rest = spec.partition(":")
    if kind not in kinds or bool(rest) != bool(kinds[kind]) or (colon and not rest):
        expected = " or ".join(f"{k}:{form}" if form else k for k, form in kinds.items())
        hint = "" if kind in kinds else near(kind, kinds)
        raise ValueError(f"found {spec!r}{hint}; expected {expected}")
    if not rest or rest.startswith("~"):
        return spec
    return f"{kind}:{os.path.abspath(rest)}"


def read_bytes(path: str | Path) -> bytes:
    """Return the content of a file, whose path may begin with ~; raise DataError if unreadable."""
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}); expected a text file."
        ) from None


def list_classes(
    root: Path, suffixes: tuple[str, ...], *, is_test: bool, least: int = 1
) -> tuple[tuple[str, ...], list[list[Path]]]:
    """Return the sorted classes of a data directory, and the sorted files of each class.

    The folder ``root/train``, for the test part ``root/test`` or ``root/val``, contains a folder
    for each class, whose files may lie in folders of their own. A root with none of them contains
    the folders of the classes itself. Hidden entries are ignored. A NasWarning says if files
    without one of the ``suffixes`` (in lower case) or without a class are not listed, or if there
    is no folder train. DataError is raised if a folder cannot be read, if there are fewer than two
    classes, or none in a test part, or if a class has fewer than ``least`` files.
    """
    part = next((p for p in (TESTS if is_test else (TRAIN,)) if (root / p).is_dir()), None)
    is_flat = not is_test and not any((root / name).is_dir() for name in (TRAIN, *TESTS))
    split = root if is_flat else root / (part or (TESTS[0] if is_test else TRAIN))
    expected = f"expected at least two folders of files such as *{suffixes[0]}, one for each class"
    try:
        entries = _entries(split)
        found = {Path(entry.path): _files(entry) for entry in entries}
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
        raise DataError(f"{error.filename}: {reason}; {expected}.") from None
    classes = [Path(e.path) for e in entries if e.is_dir() and e.name != UNLABELLED]
    if len(classes) < 2 - is_test:
        raise DataError(f"{split}: found {plural(len(classes), 'folder')}; {expected}.")
    files = [[p for p in found[c] if p.name.lower().endswith(suffixes)] for c in classes]
    for folder, own in zip(classes, files, strict=True):
        if len(own) < least:
            text = f"{plural(len(own), 'file')} *{suffixes[0]}"
            if others := [path.name for path in found[folder] if path not in own]:
                text += f" and {plural(len(others), 'other')}, such as {others[0]}"
            raise DataError(f"{folder}: found {text}; expected at least {least}.")
    if is_flat:
        text = f"has no folder {TRAIN}; all its {len(classes)} folders are classes to train on"
        warnings.warn(f"{root}: {text}, without a test part.", NasWarning, stacklevel=2)
    listed = {path for own in files for path in own}
    if skipped := [path for own in found.values() for path in own if path not in listed]:
        text = f"{len(skipped):,} of {len(skipped) + len(listed):,} files are left out"
        text = f"{split}: {text}, such as {skipped[0].relative_to(split)}"
        text = f"{text}; expected {', '.join(suffixes)} in the folder of a class"
        warnings.warn(f"{text}.", NasWarning, stacklevel=2)
    return tuple(path.name for path in classes), files


def check_classes(spec: str, train: Sequence[str], test: Sequence[str]) -> None:
    """Raise DataError if the test part of a data set has other classes than the training part."""
    if train != test:
        names = ", ".join(sorted({*train} ^ {*test})) or "in another order"
        raise DataError(f"{spec}: the classes of its test part are not those of training: {names}.")


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        shown = (entry for entry in entries if not entry.name.startswith("."))
        return sorted(shown, key=lambda entry: entry.name)


def _files(entry: os.DirEntry[str]) -> list[Path]:
    """Return a file or a dangling link, or the files in a folder and in its folders."""
    if not entry.is_dir():
        return [Path(entry.path)]
    return [path for inner in _entries(entry.path) for path in _files(inner)]
