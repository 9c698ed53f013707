"""What a shell offers after TAB: names that are cheap to list, without torch and without a record.

A shell asks for words by running ``nas`` with ``_NAS_COMPLETE`` set, and puts what it gets into
code: only names that a run, a file or a mechanism may have are offered.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

REQUEST: Final = "_NAS_COMPLETE"
SHELLS: Final = ("bash", "zsh", "fish")
MEMBERS: Final = ("best", "knee", "cheapest")
_NAS: Final = Path(__file__).resolve().parents[1]
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_MECHANISM: Final = re.compile(r"^@named\([^@]*?\)\ndef (\w+)\(", re.MULTILINE)


def prepare() -> None:
    """Teach typer to answer shells; it does so unasked only where it adds options of its own."""
    _typers().completion_init()


def script(shell: str) -> str:
    """What a shell has to run to know the words of ``nas``."""
    made = _typers().get_completion_script(prog_name="nas", complete_var=REQUEST, shell=shell)
    return str(made)


def install(shell: str) -> Path:
    """Write that script where a shell reads it at its start; returns its file."""
    _, path = _typers().install(shell=shell, prog_name="nas", complete_var=REQUEST)
    return Path(path)


def _typers() -> Any:
    """What typer's own options call; it has no other name for them."""
    return import_module("typer.completion")


def mechanisms() -> list[str]:
    """The named mechanisms, read from the text of their modules, which takes no time."""
    texts = [file.read_text("utf-8") for file in (_NAS / "mechanisms").glob("*.py")]
    return sorted(name for text in texts for name in _MECHANISM.findall(text))


def runs() -> list[str]:
    """The runs in ./runs, and ``latest`` where there is one."""
    found = _plain(path.parent.name for path in Path("runs").glob("*/run.sqlite"))
    return ["latest", *found] if found else []


def sources(incomplete: str) -> list[str]:
    """Mechanisms and runs, of a run its members by name; what is a path is the shell's to offer."""
    run, slash, _ = incomplete.rpartition("/")
    if slash:
        return [f"{run}/{member}" for member in MEMBERS] if run in runs() else []
    return [*mechanisms(), *(f"{name}/" for name in runs())]


def tasks() -> list[str]:
    """The tasks that come with the package."""
    return _plain(file.stem for file in (_NAS / "tasks").glob("*.yaml"))


def spaces() -> list[str]:
    """Search spaces, packaged or in ./search_spaces."""
    return _named("search_spaces")


def policies() -> list[str]:
    """Policies, packaged or in ./validators."""
    return _named("validators")


def _named(folder: str) -> list[str]:
    from nas.common.config import named_files

    return _plain(named_files(folder))


def _plain(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if _PLAIN.fullmatch(name))
