"""Commands about genomes: ``nas show``, ``mechanisms``, ``validate``, ``cost`` and ``export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nas.cli import options
from nas.cli.app import app
from nas.cli.console import note, output, print_json, print_result, tell
from nas.common.errors import GenomeError


@app.command()
def show(
    source: options.Source,
    as_json: options.AsJson = False,
    only_source: Annotated[
        bool, typer.Option("--source", help="Print the Python source alone.")
    ] = False,
    dim: options.Dim = None,
    heads: options.Heads = None,
    tokens: options.Tokens = None,
    plot: Annotated[Path | None, options.picture("the graph")] = None,
) -> None:
    """Show formula, graph, costs and source of a genome.

    Of a named mechanism also the equations, the shapes, and how the paper's text was interpreted;
    of a run's genome also its results.
    """
    from nas.api import genomes
    from nas.report.charts import write_svg
    from nas.report.graph import graph_svg
    from nas.report.show import show as show_genome

    result = genomes.show(source, dim=dim, heads=heads, tokens=tokens)
    if only_source and result.source is None:
        raise GenomeError(f"{source}: {result.problem}")
    if only_source and not as_json:
        tell(str(result.source).rstrip("\n"))
    else:
        print_result(result, show_genome, as_json)
    if plot is not None:
        write_svg(graph_svg(result.plan.genome), plot)
        note(f"{plot}: the graph as a picture.")


@app.command()
def mechanisms(
    context: typer.Context,
    dim: options.Dim = None,
    heads: options.Heads = None,
    tokens: options.Tokens = None,
    as_json: options.AsJson = False,
) -> None:
    """List the named mechanisms with the costs of a block.

    `nas show NAME` explains one.
    """
    from dataclasses import asdict

    from nas.report.costs import Sizes, mechanisms_table, show_mechanisms

    sizes = Sizes(**options.arguments(context, "as_json"))
    if as_json:
        print_json({"sizes": asdict(sizes), "mechanisms": mechanisms_table(sizes).records()})
    else:
        show_mechanisms(output(), sizes)


@app.command()
def validate(
    context: typer.Context,
    source: options.Source,
    policy: options.Policy = None,
    as_json: options.AsJson = False,
) -> None:
    """Check a genome's types and the rules of a policy.

    Exit status 1 if the genome breaks one.
    """
    from nas.api import genomes

    result = genomes.validate(**options.arguments(context, "as_json"))
    if as_json:
        print_json(result.to_dict())
    elif result.valid:
        tell(f"{source} is legal under {result.policy} (digest {result.digest}).")
    else:
        lines = [f"  {violation.message}" for violation in result.violations]
        tell("\n".join([f"{source} is not legal under {result.policy}:", *lines]))
    if not result.valid:
        raise typer.Exit(1)


@app.command()
def cost(
    context: typer.Context,
    sources: options.Sources,
    dim: options.Dim = None,
    heads: options.Heads = None,
    tokens: Annotated[
        Any,
        typer.Option(
            help="Sequence length, or several: 64,256,1024.",
            metavar="LENGTHS",
            parser=options.lengths,
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Count multiply-adds, parameters and KV-cache bytes.

    Of one attention block at batch 1.
    """
    from nas.api import genomes
    from nas.report.costs import show_costs

    given = options.arguments(context, "as_json")
    print_result(genomes.cost(**given), show_costs, as_json)


@app.command()
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
    dim: options.Dim = None,
    heads: options.Heads = None,
    fast: Annotated[
        bool, typer.Option("--fast", help="In .py, the fastest form, not the most readable.")
    ] = False,
    weights: Annotated[
        bool,
        typer.Option("--weights", help="The weights that a run has trained, not initial ones."),
    ] = False,
    layer: Annotated[
        int | None,
        typer.Option(min=0, help="The layer of these weights; default: the first that has them."),
    ] = None,
    causal: Annotated[
        bool | None,
        typer.Option(
            "--causal/--no-causal",
            help="In .pt2 and .onnx, hide later tokens; in .py, add a method that decodes from a "
            "cache. Default: as in the run's task.",
        ),
    ] = None,
) -> None:
    """Write a mechanism as a file that does not need nas.

    The file is compared with the mechanism on random inputs and masks before it is written. Weights
    of a .py file are written beside it, into a .safetensors file.
    """
    from nas.api import exporting

    result = exporting.export(**options.arguments(context))
    tell(f"{path}: dim={result.dim}, heads={result.heads}.")
    if result.difference is not None:
        tell(f"Its outputs differ from the mechanism's by {result.difference:.1e}.")
    if path.suffix == ".py":
        tell(f"`python {path}` tests it.")
    if result.layer is not None:
        tell(f"{result.weights or path}: the trained weights of layer {result.layer}.")
    elif path.suffix != ".py":
        tell("Its weights are initial, not trained.")
