"""Commands about genomes: ``nas show``, ``mechanisms``, ``validate``, ``cost`` and ``export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nas.cli import options
from nas.cli.app import app
from nas.cli.console import note, output, print_json, print_result, tell
from nas.common.errors import GenomeError, NasError


@app.command(rich_help_panel="Look")
def show(
    source: options.Source,
    as_json: options.AsJson = False,
    only_source: Annotated[
        bool, typer.Option("--source", help="Print the Python source alone.")
    ] = False,
    dim: options.AnyDim = None,
    heads: options.AnyHeads = None,
    tokens: options.AnyTokens = None,
    plot: Annotated[Path | None, options.picture("the graph")] = None,
) -> None:
    """Show everything known about one genome.

    Prints formula, graph, costs and source, and for a genome of a run also results and lineage. By
    default --dim, --heads and --tokens are the sizes of the run's task, or 64, 4 and 65.
    """
    from nas.api import genomes
    from nas.report.graph import write_graph
    from nas.report.show import show as show_genome

    result = genomes.show(source, dim=dim, heads=heads, tokens=tokens)
    if as_json:
        print_json(result.to_dict())
    elif not only_source:
        show_genome(output(), result)
    elif result.source is None:
        raise GenomeError(f"{source}: {result.priced.problem}")
    else:
        tell(result.source.rstrip("\n"))
    if plot is not None:
        write_graph(result.plan.genome, plot)
        note(f"{plot}: the graph as a picture.")


@app.command(rich_help_panel="What there is")
def mechanisms(
    name: Annotated[
        str | None,
        typer.Argument(help="A mechanism; default: all."),
    ] = None,
    dim: options.Dim = 64,
    heads: options.Heads = 4,
    tokens: options.Tokens = 65,
    as_json: options.AsJson = False,
) -> None:
    """List the named mechanisms, or explain the mechanism NAME.

    The list gives the costs of one attention block at batch 1. With a NAME the output also gives
    the equations, the shapes, and how the paper's text was interpreted.
    """
    from nas.genome.mechanisms import mechanism
    from nas.report import costs as report

    sizes = report.Sizes(dim, heads, tokens)
    named = None if name is None else mechanism(name)
    if as_json:
        print_json(report.mechanisms_answer(sizes, named))
    elif named:
        report.show_mechanism(output(), named, sizes)
    else:
        report.show_mechanisms(output(), sizes)


@app.command(rich_help_panel="Develop")
def validate(
    source: options.Source,
    policy: options.Policy = "score_normalize_aggregate",
    as_json: options.AsJson = False,
) -> None:
    """Check a genome's types and the rules of a policy; exit status 1 if it breaks one."""
    from nas.api import genomes

    result = genomes.validate(source, policy=policy)
    if as_json:
        print_json(result.to_dict())
    elif result.valid:
        tell(f"{source} is legal under {result.policy} (digest {result.digest}).")
    else:
        lines = [f"  {violation.message}" for violation in result.violations]
        tell("\n".join([f"{source} is not legal under {result.policy}:", *lines]))
    if not result.valid:
        raise typer.Exit(1)


@app.command(rich_help_panel="Compare")
def cost(
    sources: options.Sources,
    dim: options.Dim = 64,
    heads: options.Heads = 4,
    tokens: Annotated[
        str, typer.Option(help="Sequence length, or several: 64,256,1024.", metavar="LENGTHS")
    ] = "65",
    plot: Annotated[Path | None, options.picture("cost against length")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Count multiply-adds, parameters and KV-cache bytes of one attention block at batch 1."""
    from nas.api import genomes
    from nas.report.charts import cost_chart, write_chart
    from nas.report.costs import show_costs

    lengths = _lengths(tokens)
    if plot is not None and len(lengths) < 2:
        raise NasError(
            f"--plot: found one length, {min(lengths)}; expected several, such as "
            "--tokens 64,256,1024."
        )
    table = genomes.cost(sources, dim=dim, heads=heads, tokens=sorted(lengths))
    print_result(table, show_costs, as_json)
    if plot is not None:
        write_chart(cost_chart(table), plot)
        note(f"{plot}: cost against length as a picture.")


def _lengths(text: str) -> set[int]:
    most = options.MOST_TOKENS
    try:
        lengths = {int(word) for word in text.split(",")}
    except ValueError:
        lengths = {0}
    if min(lengths) < 1 or max(lengths) > most:
        raise NasError(
            f"--tokens {text!r}: expected whole numbers from 1 to {most:,} with commas "
            "between them, such as 64,256,1024."
        )
    return lengths


@app.command(rich_help_panel="Take away")
def export(
    context: typer.Context,
    source: options.Source,
    path: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            help="The file to write: .py, readable torch; .pt2, of torch.export; .onnx.",
        ),
    ],
    dim: options.AnyDim = None,
    heads: options.AnyHeads = None,
    fast: Annotated[
        bool, typer.Option(help="In .py, the fastest form, not the most readable.")
    ] = False,
    weights: Annotated[
        bool,
        typer.Option(
            help="Write the weights that a run has trained, for .py into a .safetensors file "
            "beside it. Default: initial weights."
        ),
    ] = False,
    layer: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="The backbone layer whose weights are written; default: the first with the "
            "mechanism.",
        ),
    ] = None,
    causal: Annotated[
        bool | None,
        typer.Option(
            "--causal/--no-causal",
            help="In .pt2 and .onnx, hide later tokens; default: as in the run's task.",
        ),
    ] = None,
) -> None:
    """Write a mechanism as a file that does not need nas.

    By default --dim and --heads are the sizes of the run's task, or 64 and 4. The file is compared
    with the mechanism on random inputs and masks before it is written.
    """
    from nas.api import exporting

    result = exporting.export(**options.arguments(context))
    tell(f"{path}: dim={result.dim}, heads={result.heads}.")
    for remark in result.remarks:
        tell(remark)
    if result.difference is not None:
        tell(f"Its outputs differ from the mechanism's by {result.difference:.1e}.")
    if path.suffix == ".py":
        tell(f"`python {path}` tests it.")
    if result.layer is not None:
        tell(f"{result.weights or path}: the trained weights of layer {result.layer}.")
    elif path.suffix != ".py":
        tell("Its weights are initial, not trained.")
