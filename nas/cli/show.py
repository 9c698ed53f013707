"""``nas show``: one genome from all sides."""

from __future__ import annotations

from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.options import MOST_TOKENS, AnyDim, AnyHeads, AsJson, Source


@app.command()
def show(
    source: Source,
    as_json: AsJson = False,
    only_source: Annotated[
        bool, typer.Option("--source", help="Print the Python source alone.")
    ] = False,
    dim: AnyDim = None,
    heads: AnyHeads = None,
    tokens: Annotated[
        int | None, typer.Option(min=1, max=MOST_TOKENS, help="Sequence length.")
    ] = None,
) -> None:
    """Show one genome from all sides.

    Formula, graph, costs and source; of a run's genome also results and lineage. Sizes default to
    those of the run's task, or to 64, 4 and 65.
    """
    from nas.api import examined
    from nas.cli.console import output, print_json, tell
    from nas.errors import GenomeError
    from nas.report.show import show as show_all
    from nas.report.show import show_answer

    shown = examined(source, dim, heads, tokens)
    if as_json:
        print_json(show_answer(shown))
    elif not only_source:
        show_all(output(), shown)
    elif shown.code is None:
        raise GenomeError(f"{source}: {shown.priced.problem}")
    else:
        tell(shown.code.rstrip("\n"))
