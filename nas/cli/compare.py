"""``nas evaluate``, ``benchmark``, ``judge`` and ``explain`` train without a search."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nas.cli import completion, options
from nas.cli.app import app
from nas.cli.console import complain, note, print_result


@app.command(rich_help_panel="Compare")
@options.with_workers
def evaluate(
    context: typer.Context,
    sources: options.Sources,
    task: Annotated[
        str, typer.Option(help="A task, by name or path.", autocompletion=completion.tasks)
    ] = "vit-cifar10",
    data: options.Data = None,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of each mechanism.")] = 1,
    seed: options.StudySeed = 0,
    policy: options.Policy = "score_normalize_aggregate",
    record: options.Record = None,
    test: options.OnTest = False,
    as_json: options.AsJson = False,
    **execution: Any,
) -> None:
    """Train mechanisms under a task without a search, and print their metrics."""
    from nas.api import comparing
    from nas.report.trials import trial_line, trial_table

    arguments = options.arguments(context, "as_json")
    result = comparing.evaluate(**arguments, on_training=lambda *done: note(trial_line(*done)))
    print_result(result, trial_table, as_json)
    if not result.is_ok:
        raise typer.Exit(1)


@app.command(rich_help_panel="Compare")
@options.with_workers
def benchmark(
    context: typer.Context,
    sources: options.Sources,
    against: Annotated[str, typer.Option(help="The reference of all differences.")] = "mha",
    tasks: Annotated[
        str | None, typer.Option(help="Tasks, separated by commas; default: six built-in ones.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="TASK=SPEC: training data of a task; repeatable."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of each mechanism and task.")] = 5,
    seed: options.StudySeed = 0,
    rates: options.Rates = False,
    policy: options.Policy = "score_normalize_aggregate",
    record: options.Record = None,
    test: options.OnTest = False,
    plot: Annotated[Path | None, options.picture("the differences")] = None,
    as_json: options.AsJson = False,
    **execution: Any,
) -> None:
    """Train mechanisms under several tasks and compare each with a reference.

    Differences are between trainings with the same seed; p-values are corrected for the number of
    comparisons.
    """
    from nas.api import comparing
    from nas.report.benchmark import benchmark_table
    from nas.report.charts import draw_benchmark, write_figure
    from nas.report.trials import trial_line

    result = comparing.benchmark(
        **options.arguments(context, "tasks", "data", "plot", "as_json"),
        tasks=[name.strip() for name in tasks.split(",")] if tasks else comparing.TASKS,
        data=options.pairs(data or ()),
        on_training=lambda task, *done: note(f"{task}: {trial_line(*done)}"),
        on_save_error=complain,
    )
    print_result(result, benchmark_table, as_json)
    if plot is not None:
        write_figure(draw_benchmark(result), plot)
        note(f"{plot}: the differences as a picture.")
    if not result.is_ok:
        raise typer.Exit(1)


@app.command(rich_help_panel="Compare")
@options.with_workers
def judge(
    context: typer.Context,
    source: options.Trainable,
    against: Annotated[str, typer.Option(help="The reference.")] = "mha",
    task: Annotated[
        str, typer.Option(help="A task, by name or path.", autocompletion=completion.tasks)
    ] = "vit-cifar10",
    data: options.Data = None,
    pairs: Annotated[int, typer.Option(min=1, help="Most pairs of trainings.")] = 40,
    minutes: Annotated[float, typer.Option(help="Begin no pairs after this time.")] = 10.0,
    policy: options.Policy = "score_normalize_aggregate",
    record: options.Record = None,
    as_json: options.AsJson = False,
    **execution: Any,
) -> None:
    """Train a mechanism and a reference in pairs until one is shown to be better.

    The probability of a false claim is at most 5 %; with --record, of any false claim about the
    first 50 mechanisms that the record compares with one reference under one task.
    """
    from nas.api import judging
    from nas.report.judgement import judgement_table
    from nas.report.trials import trial_line

    result = judging.judge(
        **options.arguments(context, "as_json"),
        on_training=lambda *done: note(trial_line(*done)),
    )
    print_result(result, judgement_table, as_json)
    if not result.is_ok:
        raise typer.Exit(1)


@app.command(rich_help_panel="Compare")
@options.with_workers
def explain(
    context: typer.Context,
    source: options.Source,
    task: Annotated[
        str | None,
        typer.Option(
            help="A task, by name or path; default: RUN/ID's, or vit-cifar10.",
            autocompletion=completion.tasks,
        ),
    ] = None,
    data: options.Data = None,
    seeds: Annotated[int, typer.Option(min=2, help="Trainings of each mechanism.")] = 5,
    most_seeds: Annotated[
        int | None, typer.Option(min=2, help="Repeat unresolved comparisons up to this number.")
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(help="Smaller differences count as none; default: 1 %."),
    ] = None,
    seed: options.StudySeed = 0,
    policy: Annotated[
        str | None,
        typer.Option(
            help="A policy, by name or path; default: RUN/ID's.",
            autocompletion=completion.policies,
        ),
    ] = None,
    record: options.Record = None,
    as_json: options.AsJson = False,
    **execution: Any,
) -> None:
    """Measure what each part of a mechanism contributes, by ablation.

    Trains the mechanism, its variants with one edit each, the steps that lead from standard
    attention to the mechanism, and standard attention with about as many multiply-adds or
    parameters. Prints the differences between trainings with the same seed.
    """
    from nas.api import explaining
    from nas.report.explanation import explanation_table
    from nas.report.trials import trial_line

    result = explaining.explain(
        **options.arguments(context, "as_json"),
        on_training=lambda *done: note(trial_line(*done)),
        on_save_error=complain,
    )
    print_result(result, explanation_table, as_json)
    if not result.is_ok:
        raise typer.Exit(1)
