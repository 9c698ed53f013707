"""The command line's one application object; each module beside this one adds its commands."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(
    name="nas",
    help="Search for attention mechanisms; look at what was found, and take it away.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"nas {version('nas')}")
        except PackageNotFoundError:
            typer.echo("nas, not installed")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Search for attention mechanisms; look at what was found, and take it away."""
