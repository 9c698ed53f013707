"""``nas explain``: what each part of a mechanism is worth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from nas.cli import completion
from nas.cli.app import app
from nas.cli.console import complain, note, output, print_json
from nas.cli.options import AsJson, Data, Record, Source, StudySeed, trains

if TYPE_CHECKING:
    from typing import Unpack

    from nas.api.execution import Executing


@app.command()
@trains
def explain(
    source: Source,
    task: Annotated[
        str | None,
        typer.Option(
            help="A task, by name or path; of RUN/ID its run's, else images.",
            autocompletion=completion.tasks,
        ),
    ] = None,
    data: Data = None,
    seeds: Annotated[int, typer.Option(min=2, help="Trainings of each, with fresh seeds.")] = 5,
    most_seeds: Annotated[
        int | None, typer.Option(min=2, help="Go on with what is unresolved, up to so many.")
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(help="What is smaller is the same; else 1/100 from chance to the ideal."),
    ] = None,
    seed: StudySeed = 0,
    policy: Annotated[
        str | None,
        typer.Option(
            help="What genomes must obey; of RUN/ID its run's policy.",
            autocompletion=completion.policies,
        ),
    ] = None,
    record: Record = None,
    as_json: AsJson = False,
    **execution: Unpack[Executing],
) -> None:
    """Say what each part of a mechanism is worth, by training it without.

    Single edits, the steps that lead to it from standard attention, and standard attention of
    about its costs; differences are between trainings that share their seed.
    """
    from nas.api import explaining
    from nas.report.explanation import explanation_table
    from nas.report.trials import trial_line

    save_errors: list[str] = []
    result = explaining.explain(
        source,
        task=task,
        data=data,
        seeds=seeds,
        most_seeds=most_seeds,
        margin=margin,
        seed=seed,
        policy=policy,
        record=record,
        on_training=lambda *training: note(trial_line(*training)),
        on_save_error=save_errors.append,
        **execution,
    )
    if as_json:
        print_json(result.to_dict())
    else:
        explanation_table(output(), result)
    for why in save_errors:
        complain(why)
    if not result.is_ok:
        raise typer.Exit(1)
