"""The formats of an export by name, and how its file comes to lie where it shall.

Another package adds one under the entry point group ``nas.exports``:

    @EXPORTS.register("onnx")
    @ExportFormat.of(".onnx")
    def write(genome, dim, heads, origin, *, qkv_bias=False, is_fast=False) -> bytes: ...
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nas.errors import ExportError
from nas.registry import Registry
from nas.store.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class ExportFormat:
    """What makes a file's content of a mechanism, and how the file's name ends.

    Called as ``export_module`` is, with the same arguments.
    """

    suffix: str
    content: Callable[..., str | bytes]

    @classmethod
    def of(cls, suffix: str) -> Callable[[Callable[..., str | bytes]], ExportFormat]:
        """Decorate a function."""
        return lambda content: cls(suffix, content)

    def __call__(self, *given: Any, **options: Any) -> str | bytes:
        """The file's content."""
        return self.content(*given, **options)


EXPORTS: Final[Registry[ExportFormat]] = Registry(
    "export format", "nas.exports", modules=("nas.exporting.module",)
)


def check_target(path: Path, suffix: str = ".py") -> None:
    """Refuse a place where no such file can be written, before any work is done.

    Raises:
        ExportError: the name does not end in the suffix, is none, or something else than a file is
            there.
    """
    if path.suffix != suffix:
        raise ExportError(f"{str(path)!r}: expected the name of a file that ends in {suffix}.")
    try:
        is_other = path.exists() and not path.is_file()
    except (OSError, ValueError) as error:
        raise _refused(path, error) from None
    if is_other:
        raise ExportError(f"{path}: is there already and is no file.")


def write_export(content: str | bytes, path: Path) -> None:
    """Write a file, whole or not at all, and never through a link that lies in its place.

    Raises:
        ExportError: the place cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content.encode() if isinstance(content, str) else content)
    except (OSError, ValueError) as error:
        raise _refused(path, error) from None


def _refused(path: Path, error: Exception) -> ExportError:
    reason = getattr(error, "strerror", None) or str(error)
    name = str(path) if len(str(path)) <= 120 else f"{str(path)[:117]}..."
    return ExportError(f"{name}: cannot be written ({reason}).")
