"""``nas cost``: count what attention blocks do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.options import MOST_TOKENS, AsJson, Dim, Heads, Sources
from nas.errors import NasError


@app.command()
def cost(
    sources: Sources,
    dim: Dim = 64,
    heads: Heads = 4,
    tokens: Annotated[
        str, typer.Option(help="Sequence length, or several: 64,256,1024.", metavar="LENGTHS")
    ] = "65",
    plot: Annotated[
        Path | None,
        typer.Option(help="Also draw cost against length into this .png, .svg or .pdf."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Count multiply-adds, parameters and cache of one attention block at batch 1."""
    from nas.cli.console import note, output, print_json
    from nas.report.costs import Block, cost_answer, costed, show_costs
    from nas.sources import resolve

    block = Block(dim, heads, _lengths(tokens))
    if plot is not None:
        from nas.report.plot import check_plot

        check_plot(plot)
        if len(block.lengths) < 2:
            raise NasError(
                f"--plot: found one length, {block.lengths[0]}; expected several, such as "
                "--tokens 64,256,1024."
            )
    found = costed([resolve(source) for source in sources], block)
    if as_json:
        print_json(cost_answer(found, block))
    else:
        show_costs(output(), found, block)
    if plot is not None:
        from nas.report.cost_plot import plot_costs

        plot_costs(found, block, plot)
        note(f"{plot}: cost against length as a picture.")


def _lengths(text: str) -> tuple[int, ...]:
    """The lengths of ``--tokens``, each once, from short to long."""
    words = text.split(",")
    are_numbers = all(re.fullmatch(r"\s*[0-9]{1,7}\s*", word) for word in words)
    lengths = sorted({int(word) for word in words}) if are_numbers else [0]
    if lengths[0] < 1 or lengths[-1] > MOST_TOKENS:
        raise NasError(
            f"--tokens {text!r}: expected whole numbers from 1 to {MOST_TOKENS:,} with commas "
            "between them, such as 64,256,1024."
        )
    return tuple(lengths)
