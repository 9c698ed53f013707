"""``nas front``, ``nas show``, ``nas runs``, ``nas mechanisms``: look at what there is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nas.cli.app import app
from nas.cli.console import complain, output, print_json

if TYPE_CHECKING:
    from nas.report.show import Sizes
    from nas.sources import Source

AsJson = Annotated[bool, typer.Option("--json", help="Print the JSON answer.")]


@app.command()
def front(
    run: Annotated[str, typer.Argument(help="A run's name or path, or latest.")] = "latest",
    plot: Annotated[
        Path | None, typer.Option(help="Also draw the front into this .png, .svg or .pdf.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a run's front.

    The mechanisms that no other one beats, what they cost, and how the run stands. Exit status 1
    if there are none yet.
    """
    from nas.report.facts import gather
    from nas.report.front import answer, no_front, show_front
    from nas.store import find_run, open_run

    if plot is not None:
        from nas.report.plot import check_plot, plot_front

        check_plot(plot)
    with open_run(find_run(run)) as opened, opened.snapshot():
        facts = gather(opened)
        if as_json:
            print_json(answer(opened, facts))
    if not facts.members:
        complain(no_front(facts, run))
        raise typer.Exit(1)
    if not as_json:
        show_front(output(), facts, run)
    if plot is not None:
        plot_front(facts, plot)
        output(is_error=True).print(f"{plot}: the front as a picture.", soft_wrap=True)


@app.command()
def show(
    source: Annotated[str, typer.Argument(help="A genome file, a mechanism, or RUN/ID.")],
    as_json: AsJson = False,
    only_source: Annotated[
        bool, typer.Option("--source", help="Print the Python source alone.")
    ] = False,
    dim: Annotated[int | None, typer.Option(min=1, max=65_536, help="Model width.")] = None,
    heads: Annotated[
        int | None, typer.Option(min=1, max=65_536, help="Heads of the backbone.")
    ] = None,
    tokens: Annotated[int | None, typer.Option(min=1, max=2**20, help="Sequence length.")] = None,
) -> None:
    """Show one genome from all sides.

    Formula, graph, costs and source; of a run's genome also results and lineage. Sizes default to
    those of the run's task, or to 64, 4 and 65.
    """
    from nas.errors import GenomeError
    from nas.report.show import examine, show_answer
    from nas.report.show import show as show_all
    from nas.sources import resolve

    found = resolve(source)
    shown = examine(found, _sizes(found, dim, heads, tokens))
    if as_json:
        print_json(show_answer(shown))
    elif not only_source:
        show_all(output(), shown)
    elif shown.code is None:
        raise GenomeError(f"{source}: {shown.problem}")
    else:
        typer.echo(shown.code, nl=False)


@app.command()
def runs(as_json: AsJson = False) -> None:
    """List the runs, last active last."""
    from nas.report.runs import runs_answer, runs_columns
    from nas.report.table import say, say_table
    from nas.store import RUNS, list_runs

    found, problems = list_runs()
    if as_json:
        print_json(runs_answer(found, problems))
        return
    if found:
        say_table(output(), runs_columns(found))
    else:
        say(output(), f"No runs in {RUNS} yet; `nas search --space quickstart` makes one.")
    for problem in problems:
        complain(str(problem))


@app.command()
def mechanisms(
    name: Annotated[str | None, typer.Argument(help="One of them; all if none is given.")] = None,
    dim: Annotated[int, typer.Option(min=1, max=65_536, help="Model width.")] = 64,
    heads: Annotated[int, typer.Option(min=1, max=65_536, help="Heads of the backbone.")] = 4,
    tokens: Annotated[int, typer.Option(min=1, max=2**20, help="Sequence length.")] = 65,
    as_json: AsJson = False,
) -> None:
    """List the named mechanisms, or explain one.

    A list gives the costs of one attention block at batch 1; a NAME also gives the equations, the
    shapes, and how the paper was read.
    """
    from nas.report.mechanisms import (
        mechanism_answer,
        mechanisms_answer,
        price,
        priced,
        show_mechanism,
        show_mechanisms,
    )
    from nas.report.show import Sizes

    sizes = Sizes(dim, heads, tokens)
    if name is not None:
        found = price(name, sizes)
        if as_json:
            print_json(mechanism_answer(found, sizes))
        else:
            show_mechanism(output(), found, sizes)
    elif as_json:
        print_json(mechanisms_answer(priced(sizes), sizes))
    else:
        show_mechanisms(output(), priced(sizes), sizes)


def _sizes(source: Source, dim: int | None, heads: int | None, tokens: int | None) -> Sizes:
    """The sizes asked for, else those of the run's task, else the default ones."""
    from nas.report.show import Sizes, sizes_of_run

    default = Sizes() if source.run is None else sizes_of_run(source.run)
    return Sizes(
        dim or default.dim, heads or default.heads, tokens or default.tokens, default.qkv_bias
    )
