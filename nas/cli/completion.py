"""Shell completion: names that can be listed without torch and without opening a record.

A shell runs ``nas`` with ``_NAS_COMPLETE`` set and evaluates the output, so only names of plain
characters are offered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import typer

from nas.cli.console import note, tell

REQUEST: Final = "_NAS_COMPLETE"
SHELLS: Final = ("bash", "zsh", "fish")
MEMBERS: Final = ("best", "knee", "cheapest")
# The named mechanisms; their registry needs torch.
MECHANISMS: Final = (
    "additive champion_2025 champion_control flex_sqa gqa lsqa messages mha mqa neural_attention "
    "neural_attention_authors patterns patterns_and_messages qana rsqa sqa ssqa sw_sqa uniform "
    "xsmqa xsqa"
)
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


def typer_completion() -> Any:
    """Typer's functions for its own completion options, which are not public."""
    return import_module("typer.completion")


def install(shell: str | None) -> None:
    """Write the completion script where the shell reads it at its start, and exit."""
    if shell is not None:
        _check(shell)
        module = typer_completion()
        _, path = module.install(shell=shell, prog_name="nas", complete_var=REQUEST)
        note(f"{path}: completion for {shell}, from its next start on.")
        raise typer.Exit


def show(shell: str | None) -> None:
    """Print the completion script, and exit."""
    if shell is not None:
        _check(shell)
        module = typer_completion()
        tell(module.get_completion_script(prog_name="nas", complete_var=REQUEST, shell=shell))
        raise typer.Exit


def _check(shell: str) -> None:
    if shell not in SHELLS:
        raise typer.BadParameter(f"found {shell!r}; expected one of {', '.join(SHELLS)}")


def mechanisms() -> list[str]:
    """The named mechanisms."""
    return MECHANISMS.split()


def runs() -> list[str]:
    """The runs in ./runs, and ``latest`` if there is one."""
    names = _plain(path.parent.name for path in Path("runs").glob("*/run.sqlite"))
    return ["latest", *names] if names else []


def sources(incomplete: str) -> list[str]:
    """Mechanisms and runs; after ``RUN/`` the names of members. Shells complete paths."""
    run, slash, _ = incomplete.rpartition("/")
    if slash:
        return [f"{run}/{member}" for member in MEMBERS] if run in runs() else []
    return [*mechanisms(), *(f"{name}/" for name in runs())]


def tasks() -> list[str]:
    """The built-in tasks."""
    return _plain(file.stem for file in (Path(__file__).parents[1] / "tasks").glob("*.yaml"))


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
