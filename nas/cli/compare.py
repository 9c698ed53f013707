"""``nas evaluate``, ``judge``, ``ladder`` and ``explain`` train without a search."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nas.cli import options
from nas.cli.app import app
from nas.cli.console import note, note_training, print_result


@app.command()
@options.with_workers
def evaluate(
    context: typer.Context,
    sources: options.Sources,
    tasks: Annotated[
        Any,
        typer.Option(
            metavar="TASK,...",
            help="Tasks, by name or path; default: RUN/ID's, or vit-cifar10.",
            parser=options.names,
        ),
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="The reference; default: the first mechanism.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="Training data; TASK=SPEC with several tasks, repeatable."),
    ] = None,
    seeds: options.Seeds = 1,
    seed: options.StudySeed = 0,
    rates: options.Rates = None,
    policy: options.Policy = None,
    record: options.Record = None,
    test: Annotated[
        bool,
        typer.Option("--test", help="Evaluate on the test set, not on held-out training data."),
    ] = False,
    as_json: options.AsJson = False,
    **execution: Any,
) -> None:
    """Train mechanisms without a search, and compare them.

    Differences are between trainings with the same seed; p-values are corrected for the number of
    comparisons.
    """
    from nas.api import comparing
    from nas.report.comparison_table import comparison_table

    result = comparing.evaluate(
        **options.arguments(context, "data", "as_json"),
        data=options.data_of(data or (), tasks or ()),
        on_training=note_training,
    )
    print_result(result, comparison_table, as_json)


@app.command()
@options.with_workers
def judge(
    context: typer.Context,
    source: options.Trainable,
    against: options.Against = None,
    task: options.TaskOfRun = None,
    data: options.Data = None,
    claim: Annotated[
        str, typer.Option(help="What is claimed: better at a typical seed, or in the mean.")
    ] = "typical",
    pairs: Annotated[int, typer.Option(min=1, help="Most pairs of trainings.")] = 40,
    minutes: Annotated[float, typer.Option(help="Begin no pairs after this time.")] = 10.0,
    rates: options.Rates = None,
    policy: options.Policy = None,
    record: options.Record = None,
    as_json: options.AsJson = False,
    **execution: Any,
) -> None:
    """Decide by pairs of trainings whether a mechanism is better.

    Pairs end once better or worse is shown. The probability of a false claim is at most 5 %, for
    gains of any distribution; with --record, of any false claim about the first 50 mechanisms that
    the record compares with one reference under one task.
    """
    from nas.api import judging
    from nas.report.judgement import judgement_table

    given = options.arguments(context, "as_json")
    print_result(judging.judge(**given, on_training=note_training), judgement_table, as_json)


@app.command()
@options.with_workers
def ladder(
    context: typer.Context,
    sources: options.Sources,
    against: options.Against = None,
    task: Annotated[
        str | None, typer.Option(help="A task, by name or path; default: RUN/ID's, or text.")
    ] = None,
    sizes: Annotated[
        Any,
        typer.Option(
            metavar="NUMBER,...",
            help="Compute of each size, as a multiple of the task's; default: 1/25,1/5,1,5.",
            parser=options.numbers,
        ),
    ] = None,
    data: options.Data = None,
    seeds: Annotated[int, typer.Option(min=2, help="Trainings of each mechanism and size.")] = 3,
    seed: options.StudySeed = 0,
    rates: options.Rates = None,
    policy: options.Policy = None,
    record: options.Record = None,
    plot: Annotated[Path | None, options.picture("the ladder")] = None,
    as_json: options.AsJson = False,
    **execution: Any,
) -> None:
    """Compare mechanisms with the task's reference at several sizes.

    Estimates how many times as long the reference needs for the same loss, and whether this
    speed-up rises or falls with size. The same command continues a ladder.
    """
    from nas.api import climbing
    from nas.report.ladder import ladder_table

    result = climbing.ladder(
        **options.arguments(context, "plot", "as_json"),
        on_training=note_training,
        on_timing=lambda size: note(f"{size}: timing steps of all mechanisms in turns."),
    )
    if plot is not None and result.is_ok:
        from nas.report.charts import write_chart
        from nas.report.ladder_chart import ladder_chart

        write_chart(ladder_chart(result), plot)
        note(f"{plot}: the ladder as a picture.")
    print_result(result, ladder_table, as_json)


@app.command()
@options.with_workers
def explain(
    context: typer.Context,
    source: options.Source,
    against: options.Against = None,
    task: options.TaskOfRun = None,
    data: options.Data = None,
    seeds: Annotated[int, typer.Option(min=2, help="Trainings of each mechanism.")] = 5,
    margin: Annotated[
        float | None, typer.Option(help="Smaller differences count as none; default: 1 %.")
    ] = None,
    seed: options.StudySeed = 0,
    policy: options.Policy = None,
    record: options.Record = None,
    as_json: options.AsJson = False,
    **execution: Any,
) -> None:
    """Measure what each part of a mechanism contributes.

    Trains the mechanism, its variants with one edit each, and the reference, also with about as
    many multiply-adds or parameters. Prints differences between trainings with the same seed.
    """
    from nas.api import explaining
    from nas.report.explanation import explanation_table

    given = options.arguments(context, "as_json")
    print_result(explaining.explain(**given, on_training=note_training), explanation_table, as_json)
