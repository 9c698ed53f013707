"""``nas validate``, ``nas cost`` and ``nas export``: what can be said of a genome untrained."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from nas.cli.app import app
from nas.cli.console import print_json
from nas.errors import NasError, TaskError

if TYPE_CHECKING:
    from nas.report.costs import Block
    from nas.sources import Source

MOST_TOKENS: Final = 2**20

SourceArgument = Annotated[str, typer.Argument(help="A genome file, a mechanism, or RUN/ID.")]


@app.command()
def validate(
    source: SourceArgument,
    policy: Annotated[
        str, typer.Option(help="A policy, by name or path.")
    ] = "score_normalize_aggregate",
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON answer.")] = False,
) -> None:
    """Judge a genome by types and a policy's path rules; exit status 1 if it is not legal."""
    from nas.canonical import digest
    from nas.sources import resolve
    from nas.validation import load_policy, with_repairs
    from nas.validation import validate as judge

    rules = load_policy(policy)
    genome = resolve(source).genome
    violations = with_repairs(genome, rules, judge(genome, rules))
    if as_json:
        answer = {
            "valid": not violations,
            "digest": digest(genome),
            "policy": rules.name,
            "violations": [violation.to_dict() for violation in violations],
        }
        print_json(answer)
    elif not violations:
        typer.echo(f"{source} is legal under {rules.name} (digest {digest(genome)}).")
    else:
        typer.echo(f"{source} is not legal under {rules.name}:")
        for violation in violations:
            typer.echo(f"  {violation.message}")
        repair = violations[0].repair
        if repair is not None:
            typer.echo(f"The nearest legal genome found:\n  {repair.to_json()}")
    if violations:
        raise typer.Exit(1)


@app.command()
def cost(
    sources: Annotated[list[str], typer.Argument(help="Genome files, mechanisms, RUN/ID.")],
    dim: Annotated[int, typer.Option(min=1, max=65_536, help="Model width.")] = 64,
    heads: Annotated[int, typer.Option(min=1, max=65_536, help="Heads of the backbone.")] = 4,
    tokens: Annotated[
        str, typer.Option(help="Sequence length, or several: 64,256,1024.", metavar="LENGTHS")
    ] = "65",
    plot: Annotated[
        Path | None,
        typer.Option(help="Also draw cost against length into this .png, .svg or .pdf."),
    ] = None,
    is_measured: Annotated[
        bool, typer.Option("--measure", help="Also measure time and peak memory.")
    ] = False,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Times that each is measured; 5.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Where to measure: cpu, or cuda.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON answer.")] = False,
) -> None:
    """Count multiply-adds, parameters and cache of one attention block at batch 1.

    --measure adds the time and the peak memory of a forward pass, and of a forward and a backward
    pass, of the module that trains.
    """
    from nas.cli.console import output
    from nas.report.costs import Block, cost_answer, costed, show_costs
    from nas.sources import resolve

    block = Block(dim, heads, _lengths(tokens))
    _check_cost_options(block, plot, is_measured, rounds, device)
    found = costed([resolve(source) for source in sources], block)
    if is_measured:
        from nas.cli.measuring import measured

        block = measured(found, block, rounds or 5, device or "cpu")
    if as_json:
        print_json(cost_answer(found, block))
    else:
        show_costs(output(), found, block)
    if plot is not None:
        from nas.report.cost_plot import plot_costs

        plot_costs(found, block, plot)
        output(is_error=True).print(f"{plot}: cost against length as a picture.", soft_wrap=True)


@app.command()
def export(
    source: SourceArgument,
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write.")],
    format_: Annotated[
        str, typer.Option("--format", help="module: one torch-only file.")
    ] = "module",
    dim: Annotated[int | None, typer.Option(min=1, help="Default width of the class.")] = None,
    heads: Annotated[int | None, typer.Option(min=1, help="Default heads of the class.")] = None,
    weights: Annotated[
        bool, typer.Option(help="Also write trained weights of a run's member, as safetensors.")
    ] = False,
    layer: Annotated[int, typer.Option(min=0, help="Whose weights: a layer of the backbone.")] = 0,
) -> None:
    """Write a mechanism as one readable Python file whose only import is torch.

    Sizes default to those of the run's task, or to 64 and 4.
    """
    from nas.export import check_target, export_module, write_module
    from nas.sources import resolve

    if format_ != "module":
        raise NasError(f"--format {format_}: expected module.")
    check_target(output)
    found = resolve(source)
    task = _task_of(found)
    dim, heads = dim or (task.width if task else 64), heads or (task.heads if task else 4)
    bias = bool(task and task.qkv_bias)
    if weights:
        _check_weights(found, task, dim, heads, layer, source)
    write_module(export_module(found.genome, dim, heads, _origin(found), qkv_bias=bias), output)
    typer.echo(f"{output}: Attention(dim={dim}, heads={heads}); `python {output}` tests it.")
    if weights:
        from nas.export.weights import export_weights

        path = output.with_suffix(".safetensors")
        typer.echo(f"Training {found.name} again from its recorded seed, for its weights ...")
        accuracy = export_weights(found, layer, path)
        typer.echo(f"{path}: the weights of layer {layer}; accuracy {accuracy:.4f} as recorded.")


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


def _check_cost_options(
    block: Block, plot: Path | None, is_measured: bool, rounds: int | None, device: str | None
) -> None:
    """Refuse what does not go together before anything is counted."""
    if plot is not None:
        from nas.report.plot import check_plot

        check_plot(plot)
        if len(block.lengths) < 2:
            raise NasError(
                f"--plot: found one length, {block.lengths[0]}; expected several, such as "
                "--tokens 64,256,1024."
            )
    if not is_measured and (rounds is not None or device is not None):
        raise NasError("--rounds and --device say how to measure; add --measure.")
    if device is not None:
        from nas.measurement import check_device

        check_device(device)


def _task_of(source: Source) -> Any:
    """The task of the run that a source is a member of, or None."""
    if source.run is None:
        return None
    from nas.search.setup import from_text
    from nas.store import open_run
    from nas.tasks import Task

    with open_run(source.run) as run:
        return from_text(run.setup.task, Task)


def _check_weights(source: Source, task: Any, dim: int, heads: int, layer: int, text: str) -> None:
    from nas.genome import layers_with_mechanism

    if task is None:
        raise NasError(
            f"{text}: has no trained weights; --weights wants a member of a run, such as "
            "latest/best."
        )
    if (dim, heads) != (task.width, task.heads):
        raise TaskError(
            f"--weights: the weights were trained at dim {task.width} and heads {task.heads}, "
            f"not {dim} and {heads}; leave --dim and --heads out."
        )
    own = layers_with_mechanism(source.genome.placement, task.depth)
    if layer not in own:
        raise TaskError(
            f"--layer {layer}: does not hold the mechanism; expected one of "
            f"{', '.join(map(str, own))}."
        )


def _origin(source: Source) -> Any:
    """What the exported file says of its source."""
    from nas.export import Origin

    if source.run is None:
        return Origin(source.text)
    from nas.store import find_candidate, open_run

    with open_run(source.run) as run:
        candidate = find_candidate(run, source.digest or "")
        setup = run.setup
        measured = (
            None
            if candidate is None
            else ", ".join(
                f"{name} {value:,.4g}" if value < 1000 else f"{name} {value:,.0f}"
                for name, value in candidate.objectives.items()
            )
        )
        about = f"{run.name} (space {setup.space.name}, task {setup.task.name}, seed {setup.seed})"
        return Origin(source.text, about, measured)
