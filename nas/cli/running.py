"""``nas search``, ``nas resume`` and ``nas evaluate``: what trains."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nas.cli.app import app

if TYPE_CHECKING:
    from nas.evaluation.study import Trial
    from nas.search.listener import Ended

Workers = Annotated[int | None, typer.Option(min=1, help="Trainings at once; one a core.")]
Gpus = Annotated[float | None, typer.Option(min=0, help="GPUs a worker; fractions share one.")]
Address = Annotated[str | None, typer.Option(help="A Ray cluster to join; else one is started.")]
Backend = Annotated[str, typer.Option(help="ray, or local: in this process.")]
Limit = Annotated[float, typer.Option(help="Seconds that one training may take.")]
Data = Annotated[str | None, typer.Option(help="cifar10, digits or imagefolder:PATH.")]
Runs = Annotated[Path, typer.Option(help="The folder that runs are in.")]


@app.command()
def search(
    space: Annotated[str, typer.Option(help="A search space, by name or path.")],
    gens: Annotated[int, typer.Option(min=1, help="Generations.")] = 50,
    pop: Annotated[int, typer.Option(min=1, help="New mechanisms a generation.")] = 50,
    task: Annotated[str | None, typer.Option(help="A task, by name or path.")] = None,
    data: Data = None,
    workers: Workers = None,
    gpus_per_worker: Gpus = None,
    ray_address: Address = None,
    backend: Backend = "ray",
    seed: Annotated[int, typer.Option(min=0, help="Of the search and all trainings.")] = 0,
    repeats: Annotated[int, typer.Option(min=1, help="Trainings of each mechanism.")] = 1,
    algorithm: Annotated[
        str, typer.Option(help="nsga2, random or regularized-evolution.")
    ] = "nsga2",
    time_limit: Limit = 1800,
    run: Annotated[str | None, typer.Option(help="The run's name.")] = None,
    runs: Runs = Path("runs"),
) -> None:
    """Search a space for attention mechanisms."""
    from nas import api
    from nas.cli.console import output
    from nas.cli.live import display

    console = output()
    with display(console) as listener:
        ended = api.search(
            space,
            generations=gens,
            population=pop,
            task=task,
            data=data,
            algorithm=algorithm,
            seed=seed,
            repeats=repeats,
            run=run,
            runs=runs,
            backend=backend,
            workers=workers,
            gpus_per_worker=gpus_per_worker,
            ray_address=ray_address,
            time_limit=time_limit,
            listener=listener,
            command=_command_line(),
        )
    _show_end(ended)


@app.command()
def resume(
    run: Annotated[str, typer.Argument(help="A run's name or path, or latest.")] = "latest",
    gens: Annotated[int | None, typer.Option(min=1, help="Generations in all.")] = None,
    workers: Workers = None,
    gpus_per_worker: Gpus = None,
    ray_address: Address = None,
    backend: Backend = "ray",
    time_limit: Limit = 1800,
    runs: Runs = Path("runs"),
) -> None:
    """Go on with a run that was stopped, or add generations to a finished one."""
    from nas import api
    from nas.cli.console import output
    from nas.cli.live import display

    console = output()
    with display(console) as listener:
        ended = api.resume(
            run,
            generations=gens,
            runs=runs,
            backend=backend,
            workers=workers,
            gpus_per_worker=gpus_per_worker,
            ray_address=ray_address,
            time_limit=time_limit,
            listener=listener,
            command=_command_line(),
        )
    _show_end(ended)


@app.command()
def evaluate(
    sources: Annotated[list[str], typer.Argument(help="Genome files, mechanisms, RUN/ID.")],
    task: Annotated[str, typer.Option(help="A task, by name or path.")] = "vit-cifar10",
    data: Data = None,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of each, with other seeds.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="What the training seeds derive from.")] = 0,
    policy: Annotated[
        str, typer.Option(help="What genomes must obey, by name or path.")
    ] = "score_normalize_aggregate",
    record: Annotated[
        Path | None,
        typer.Option(help="A file that keeps finished trainings; what it holds is not repeated."),
    ] = None,
    workers: Workers = None,
    gpus_per_worker: Gpus = None,
    ray_address: Address = None,
    backend: Backend = "ray",
    time_limit: Limit = 1800,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON answer.")] = False,
) -> None:
    """Train mechanisms under a task, with several seeds, without a search."""
    from nas import api
    from nas.cli.console import output, print_json
    from nas.report.trials import trial_answer, trial_line, trial_table

    sources = list(dict.fromkeys(sources))
    trials: list[Trial] = []
    progress = output(is_error=True)
    for trial in api.evaluate(
        sources,
        task=task,
        data=data,
        seeds=seeds,
        seed=seed,
        policy=policy,
        record=record,
        backend=backend,
        workers=workers,
        gpus_per_worker=gpus_per_worker,
        ray_address=ray_address,
        time_limit=time_limit,
    ):
        trials.append(trial)
        progress.print(trial_line(trial, len(trials), seeds * len(sources)))
    trials.sort(key=lambda t: (sources.index(t.name), t.repeat))
    if as_json:
        print_json(trial_answer(task, trials))
    else:
        trial_table(output(), trials)
    if not any(trial.evaluation.is_ok for trial in trials):
        raise typer.Exit(1)


def _command_line() -> str:
    return shlex.join(["nas", *sys.argv[1:]])


def _show_end(ended: Ended) -> None:
    """The front, what to type next, and how the run ended."""
    from nas.cli.console import complain, output
    from nas.report.facts import gather
    from nas.report.front import show_front
    from nas.report.table import say
    from nas.store import RUNS, open_run

    console = output()
    if ended.status == "interrupted":
        complain(ended.message)
        raise typer.Exit(130)
    with open_run(ended.folder) as run:
        facts = gather(run)
    label = ended.run if ended.folder.parent == RUNS else str(ended.folder)
    if facts.members:
        show_front(console, facts, label)
        say(console, "")
    say(console, ended.message)
    if not facts.members:
        raise typer.Exit(1)
