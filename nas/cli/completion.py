"""Shell completion of commands, options and names, such as runs, mechanisms and tasks.

A shell runs ``nas`` with ``_NAS_COMPLETE`` set and evaluates the output. Therefore only names of
plain characters are offered. Names are listed without torch and without opening a database.
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
# Names of the named mechanisms, whose registry needs torch.
MECHANISMS: Final = (
    "additive based canon champion_2025 champion_control deltanet differential exclusive "
    "flex_sqa forgetting gated_attention gated_deltanet gla gqa hgrn hgrn2 kda linear lsqa "
    "mamba2 messages mha mla mqa neural_attention neural_attention_authors patterns "
    "patterns_and_messages qana rebased retnet rsqa sink softpick sqa ssqa stick_breaking "
    "sw_sqa talking_heads uniform xsmqa xsqa"
)
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


def typer_completion() -> Any:
    """Return typer's module that implements its completion options."""
    return import_module("typer.completion")


def install(shell: str | None) -> None:
    """Write the completion script of a shell into its start-up files, and exit."""
    if shell is not None:
        _check(shell)
        module = typer_completion()
        _, path = module.install(shell=shell, prog_name="nas", complete_var=REQUEST)
        note(f"{path}: completion for {shell}, from its next start on.")
        raise typer.Exit


def show(shell: str | None) -> None:
    """Print the completion script of a shell, and exit."""
    if shell is not None:
        _check(shell)
        module = typer_completion()
        tell(module.get_completion_script(prog_name="nas", complete_var=REQUEST, shell=shell))
        raise typer.Exit


def _check(shell: str) -> None:
    if shell not in SHELLS:
        raise typer.BadParameter(f"found {shell!r}; expected one of {', '.join(SHELLS)}")


def mechanisms() -> list[str]:
    """Return the named mechanisms."""
    return MECHANISMS.split()


def runs() -> list[str]:
    """Return ``latest`` and the names of the runs in ./runs; an empty list without a run."""
    names = _plain(path.parent.name for path in Path("runs").glob("*/run.sqlite"))
    return ["latest", *names] if names else []


def sources(incomplete: str) -> list[str]:
    """Return names of mechanisms and runs or, after ``RUN/``, of mechanisms that the run trained.

    Paths are completed by the shell itself.
    """
    run, slash, _ = incomplete.rpartition("/")
    if slash:
        return [f"{run}/{member}" for member in MEMBERS] if run in runs() else []
    return [*mechanisms(), *(f"{name}/" for name in runs())]


def tasks() -> list[str]:
    """Return the names of the built-in tasks."""
    return _plain(file.stem for file in (Path(__file__).parents[1] / "tasks").glob("*.yaml"))


def spaces() -> list[str]:
    """Return the names of the packaged search spaces and of files in ./search_spaces."""
    return _named("search_spaces")


def policies() -> list[str]:
    """Return the names of policies (rules for genomes): packaged ones and files in ./validators."""
    return _named("validators")


def _named(folder: str) -> list[str]:
    from nas.common.config import named_files

    return _plain(named_files(folder))


def _plain(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if _PLAIN.fullmatch(name))
