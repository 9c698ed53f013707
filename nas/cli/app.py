"""The typer application, to which each module of commands adds its commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nas.common.errors import NasError


class StoppedError(NasError):
    """The error that a search was interrupted; the message says how to continue the search."""

    exit_status = 130


app = typer.Typer(
    name="nas",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version

        from nas.common import DISTRIBUTION

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
) -> None:
    """Search for attention mechanisms, read the results, and export them."""
