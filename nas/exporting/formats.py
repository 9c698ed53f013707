"""The registry of export formats, and functions that write exported files and folders.

Another package adds a format under the entry point group ``nas.exports``:

    @EXPORTS.register("dot")
    @ExportFormat.of(".dot")
    def write(request: ExportRequest) -> str | bytes: ...
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias

from nas.common.errors import ExportError
from nas.common.registry import Registry
from nas.exporting.checking import ExpectedOutputs, check_outputs
from nas.exporting.request import ExportRequest
from nas.store.files import staging_for, write_whole

Content: TypeAlias = str | bytes | Mapping[str, str | bytes]
OPTIONS: Final = {"is_fast": "--fast", "is_causal": "--causal", "masks": "--masks"}


@dataclass(frozen=True)
class ExportFormat:
    """A format in which a mechanism can be exported.

    Attributes:
        suffix: suffix of the file; empty for a format that writes a folder.
        content: returns the content of the file, or the content of each file of a folder by name.
        options: keys of ``OPTIONS`` that the format supports.
        packages: import names of the packages that the format needs and nas does not require.
        has_weights: whether the content includes weights.
        tests_itself: whether the file, run as a program, compares its outputs with recorded
            outputs. Such a file is written without a check.
        loader: name of the function in clean.py that loads the content; "" if never checked.
        expected: returns the outputs that the loaded content must give; None if never checked.
    """

    suffix: str
    content: Callable[[ExportRequest], Content]
    options: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    has_weights: bool = False
    tests_itself: bool = False
    loader: str = ""
    expected: Callable[[ExportRequest], ExpectedOutputs] | None = None

    @classmethod
    def of(cls, suffix: str) -> Callable[[Callable[[ExportRequest], Content]], ExportFormat]:
        """Return a decorator that makes a format from a function that returns a file's content."""
        return lambda content: cls(suffix, content)

    def check_packages(self) -> None:
        """Raise ExportError if an optional package that the format needs is not installed."""
        missing = [name for name in self.packages if importlib.util.find_spec(name) is None]
        if missing:
            raise ExportError(
                f"this export needs packages that are not installed here; "
                f"expected `pip install {' '.join(missing)}` before it."
            )

    def check_content(self, request: ExportRequest, content: Content) -> float | None:
        """Compare the outputs of an export with the reference interpreter, in a separate process.

        Returns:
            The largest difference, as ``nas.exporting.checking`` defines it; None for a format
            without expected outputs.

        Raises:
            ExportError: the content cannot be run, or its outputs differ by more than the
                tolerance.
        """
        if self.expected is None:
            return None
        with TemporaryDirectory(prefix="nas-export-") as folder:
            path = Path(folder) / f"exported{self.suffix}"
            write_export(content, path)
            return check_outputs(path, self.loader, self.expected(request))


EXPORTS: Final[Registry[ExportFormat]] = Registry(
    "export format",
    "nas.exports",
    modules=tuple(f"nas.exporting.{name}" for name in ("python_file", "graphs", "hf")),
)


def check_target(path: Path, suffix: str = ".py") -> None:
    """Raise ExportError if an export cannot be written to a path.

    The name may have another suffix, the path may exist and not be replaceable, or the parent
    folder may be missing or not writable.

    Args:
        suffix: suffix of the format's files; empty for a format that writes a folder.
    """
    if path.suffix != suffix and suffix:
        raise ExportError(f"{str(path)!r}: expected the name of a file that ends in {suffix}.")
    folder = path.absolute().parent
    try:
        if not folder.exists():
            raise ExportError(f"{path}: there is no folder {path.parent}; create it first.")
        if not (folder.is_dir() and os.access(folder, os.W_OK)):
            raise ValueError(f"{folder.name or '/'!r} is not a folder that can be written to")
        if suffix and path.exists() and not path.is_file():
            raise ExportError(f"{path}: exists already and is not a file.")
        if not suffix and path.exists() and not (path.is_dir() and not any(path.iterdir())):
            raise ExportError(f"{path}: exists already; expected the name of a new folder.")
    except (OSError, ValueError) as error:
        raise _write_error(path, error) from None


def write_export(content: Content, path: Path) -> None:
    """Write the file or folder of an export atomically, replacing a symbolic link at the path.

    Raises:
        ExportError: the path cannot be written.
    """
    try:
        if isinstance(content, str | bytes):
            write_whole(path, _bytes(content))
        else:
            _write_folder(content, path)
    except (OSError, ValueError) as error:
        raise _write_error(path, error) from None


def _write_folder(files: Mapping[str, str | bytes], path: Path) -> None:
    staging = staging_for(path)
    staging.mkdir()
    try:
        for name, content in files.items():
            write_whole(staging / name, _bytes(content))
        staging.replace(path)  # replaces an empty folder, never a full one
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def _write_error(path: Path, error: Exception) -> ExportError:
    reason = getattr(error, "strerror", None) or str(error)
    return ExportError(f"{path}: cannot be written ({reason}).")
