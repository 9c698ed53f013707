"""The formats of an export by name, and how what they write comes to lie where it shall.

Another package adds one under the entry point group ``nas.exports``:

    @EXPORTS.register("dot")
    @ExportFormat.of(".dot")
    def write(subject: Subject) -> str | bytes: ...
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from nas.common.errors import ExportError
from nas.common.registry import Registry
from nas.exporting.recording import Recording, check
from nas.exporting.subject import Subject
from nas.store.files import staging_for, write_whole

Content: TypeAlias = str | bytes | Mapping[str, str | bytes]
SAID: Final = {"is_fast": "--fast", "is_causal": "--causal", "masks": "--masks"}


@dataclass(frozen=True)
class ExportFormat:
    """What makes a file's content of a mechanism, and how the file's name ends.

    Attributes:
        suffix: of the file; empty for a folder, whose files ``content`` gives by name.
        takes: which of the subject's choices it knows, of ``SAID``.
        needs: packages beside those of nas, by the names that they are imported by.
        has_weights: whether weights are in what is written.
        tests_itself: run as a program, it compares itself with recorded outputs, without masks
            and not causal; it is written unchecked.
        loader: what loads it in a clean process (clean.py); nothing is compared without.
        recording: what it must give there.
    """

    suffix: str
    content: Callable[[Subject], Content]
    takes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    has_weights: bool = False
    tests_itself: bool = False
    loader: str = ""
    recording: Callable[[Subject], Recording] | None = None

    @classmethod
    def of(cls, suffix: str) -> Callable[[Callable[[Subject], Content]], ExportFormat]:
        """Decorate a function."""
        return lambda content: cls(suffix, content)

    def __call__(self, subject: Subject) -> Content:
        """The file's content."""
        return self.content(subject)

    def check_packages(self) -> None:
        """Refuse to begin without what is needed.

        Raises:
            ExportError: a package is missing.
        """
        missing = [name for name in self.needs if importlib.util.find_spec(name) is None]
        if missing:
            raise ExportError(
                f"this export needs packages that are not installed here; "
                f"expected `pip install {' '.join(missing)}` before it."
            )


EXPORTS: Final[Registry[ExportFormat]] = Registry(
    "export format",
    "nas.exports",
    modules=tuple(f"nas.exporting.{name}" for name in ("module", "graphs", "hf", "timm")),
)


def check_target(path: Path, suffix: str = ".py") -> None:
    """Refuse a place where no such file can be written, before any work is done.

    Raises:
        ExportError: the name does not end in the suffix, is none, or something else than a file is
            there; where a folder shall be, anything but an empty one; or it is in no folder that
            can be written to.
    """
    if path.suffix != suffix and suffix:
        raise ExportError(f"{str(path)!r}: expected the name of a file that ends in {suffix}.")
    try:
        is_other = path.exists() and not path.is_file()
        is_taken = not suffix and path.exists() and not (path.is_dir() and not any(path.iterdir()))
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        if not (folder.is_dir() and os.access(folder, os.W_OK)):
            raise ValueError(f"{folder.name or '/'!r} is no folder that can be written to")
    except (OSError, ValueError) as error:
        raise _refused(path, error) from None
    if is_taken:
        raise ExportError(f"{path}: is there already; expected the name of a new folder.")
    if is_other and suffix:
        raise ExportError(f"{path}: is there already and is no file.")


def checked(written: ExportFormat, subject: Subject, content: Content, folder: Path) -> float:
    """Compare content with what the mechanism gives, in a clean process, before it is used.

    Args:
        folder: where it may lie meanwhile.

    Returns: the largest difference; see ``nas.exporting.recording``.

    Raises:
        ExportError: it cannot be run, or gives something else.
    """
    assert written.recording is not None
    path = folder / f"exported{written.suffix}"
    write_export(content, path)
    return check(path, written.loader, written.recording(subject))


def write_export(content: Content, path: Path) -> None:
    """Write a file or folder, whole or not at all, and never through a link that lies in its place.

    Raises:
        ExportError: the place cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str | bytes):
            write_whole(path, _bytes(content))
        else:
            _write_folder(content, path)
    except (OSError, ValueError) as error:
        raise _refused(path, error) from None


def _write_folder(files: Mapping[str, str | bytes], path: Path) -> None:
    staging = staging_for(path)
    staging.mkdir()
    try:
        for name, content in files.items():
            write_whole(staging / name, _bytes(content))
        staging.replace(path)  # an empty folder is replaced, a full one is not
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def _refused(path: Path, error: Exception) -> ExportError:
    reason = getattr(error, "strerror", None) or str(error)
    name = str(path) if len(str(path)) <= 120 else f"{str(path)[:117]}..."
    return ExportError(f"{name}: cannot be written ({reason}).")
