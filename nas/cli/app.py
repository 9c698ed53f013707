"""The typer application, to which each module of commands adds its commands."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from nas.cli import completion
from nas.common.errors import NasError

# The groups of commands in the order of `nas --help`.
PANELS: Final = ("Search", "Look", "Compare", "Take away", "What there is", "Develop")


class StoppedError(NasError):
    """The error that a search was interrupted; the message says how to continue the search."""

    exit_status = 130


class Commands(TyperGroup):
    """The group of all commands; the help lists them by their ``rich_help_panel``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line, in which ``--plugin FILE`` may also follow the command."""
        first: list[str] = []
        rest: list[str] = []
        words = iter(args)
        for word in words:
            if word == "--":
                rest += [word, *words]
            elif word == "--plugin" and (value := [*islice(words, 1)]):
                first += [word, *value]
            else:
                (first if word.startswith("--plugin=") else rest).append(word)
        return super().parse_args(ctx, first + rest)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each group of commands."""
        shown = {name: command for name, command in self.commands.items() if not command.hidden}
        width = max(map(len, shown))
        for panel in PANELS:
            with formatter.section(panel):
                formatter.write_dl(
                    [
                        (name.ljust(width), command.get_short_help_str(formatter.width - width - 6))
                        for name, command in shown.items()
                        if getattr(command, "rich_help_panel", PANELS[-1]) == panel
                    ]
                )


app = typer.Typer(
    name="nas",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,  # typer's options do not accept the name of a shell
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version

        from nas.common.distribution import DISTRIBUTION

        typer.echo(f"nas {version(DISTRIBUTION)}")
        raise typer.Exit


def _load_plugins(paths: list[Path] | None) -> None:
    from nas.common.registry import load_plugin

    for path in paths or ():
        load_plugin(path)


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
    plugin: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE.py",
            help="Import a file with primitives, tasks or others of yours; may be repeated.",
            callback=_load_plugins,
        ),
    ] = None,
    install_completion: Annotated[
        str | None,
        typer.Option(
            metavar="SHELL",
            help="Install completion for bash, zsh or fish.",
            callback=completion.install,
            is_eager=True,
        ),
    ] = None,
    show_completion: Annotated[
        str | None,
        typer.Option(
            metavar="SHELL",
            help="Print the completion script.",
            callback=completion.show,
            is_eager=True,
        ),
    ] = None,
) -> None:
    """Search for attention mechanisms, read the results, and export them."""
