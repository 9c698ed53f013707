"""``nas evaluate``: train mechanisms without a search."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.options import (
    Address,
    AsJson,
    Backend,
    Data,
    Gpus,
    Limit,
    Policy,
    Sources,
    Wait,
    Workers,
)


@app.command()
def evaluate(
    sources: Sources,
    task: Annotated[str, typer.Option(help="A task, by name or path.")] = "vit-cifar10",
    data: Data = None,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of each, with other seeds.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="What the training seeds derive from.")] = 0,
    policy: Policy = "score_normalize_aggregate",
    record: Annotated[
        Path | None,
        typer.Option(help="A file that keeps finished trainings; what it holds is not repeated."),
    ] = None,
    workers: Workers = None,
    gpus_per_worker: Gpus = None,
    ray_address: Address = None,
    backend: Backend = "ray",
    time_limit: Limit = 1800,
    start_seconds: Wait = 300,
    as_json: AsJson = False,
) -> None:
    """Train mechanisms under a task, with several seeds, without a search."""
    sources = list(dict.fromkeys(sources))
    options = {name: value for name, value in locals().items() if name != "as_json"}
    from nas import api
    from nas.cli.console import note, output, print_json
    from nas.report.trials import trial_answer, trial_line, trial_table

    trainings = []
    for training in api.evaluate(**options):
        trainings.append(training)
        note(trial_line(training, len(trainings), seeds * len(sources)))
    trainings.sort(key=lambda t: (sources.index(t.name), t.repeat))
    if as_json:
        print_json(trial_answer(task, trainings))
    else:
        trial_table(output(), trainings)
    if not any(training.evaluation.is_ok for training in trainings):
        raise typer.Exit(1)
