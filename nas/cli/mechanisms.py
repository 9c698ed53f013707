"""``nas mechanisms``: the named mechanisms."""

from __future__ import annotations

from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.options import AsJson, Dim, Heads, Tokens


@app.command()
def mechanisms(
    name: Annotated[str | None, typer.Argument(help="One of them; all if none is given.")] = None,
    dim: Dim = 64,
    heads: Heads = 4,
    tokens: Tokens = 65,
    as_json: AsJson = False,
) -> None:
    """List the named mechanisms, or explain one.

    A list gives the costs of one attention block at batch 1; a NAME also gives the equations, the
    shapes, and how the paper was read.
    """
    from nas.cli.console import output, print_json
    from nas.mechanisms import mechanism
    from nas.report import mechanisms as report
    from nas.report.costs import Sizes

    sizes = Sizes(dim, heads, tokens)
    found = None if name is None else mechanism(name)
    if as_json:
        print_json(report.mechanisms_answer(sizes, found))
    elif found:
        report.show_mechanism(output(), found, sizes)
    else:
        report.show_mechanisms(output(), sizes)
