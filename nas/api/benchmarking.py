"""Benchmark: mechanisms under several tasks at once, each compared with one of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nas.api.training import check_legal, execution_of, trainings_of
from nas.compiler import make_plan
from nas.errors import ConfigError, GenomeError
from nas.report.benchmark import benchmark_answer
from nas.searching.setup import check_count
from nas.sources import resolve
from nas.store import RUNS
from nas.tasks import load_task
from nas.validation import load_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Unpack

    from nas.api.training import Executing
    from nas.genome import Genome
    from nas.report.trials import Training
    from nas.tasks import Task

TASKS: Final = ("recall", "induction", "copying", "bytes", "text-classification", "vit-cifar10")


def benchmark(
    sources: Sequence[str | Path | Genome],
    *,
    against: str | Path | Genome = "mha",
    tasks: Sequence[str] = TASKS,
    data: Mapping[str, str] | None = None,
    seeds: int = 5,
    seed: int = 0,
    policy: str = "score_normalize_aggregate",
    record: str | Path | None = None,
    runs: str | Path = RUNS,
    heard: Callable[[str, Training], None] | None = None,
    **execution: Unpack[Executing],
) -> dict[str, Any]:
    """Train mechanisms under several tasks; the answer of ``nas benchmark --json``.

    Args:
        sources: SOURCE strings or genomes.
        against: what all are compared with, by trainings that share their seed.
        tasks: by name or path; by default the built-in ones, on tokens and on images.
        data: by task, what to train it on in place of its own.
        seeds: trainings of each under each.
        record: a file that keeps every finished training; what it holds is not repeated.
        heard: called with a task's name and each training under it.

    Raises:
        ViolationError: a genome is not legal.
        NasError: something given cannot be used; the message says what and why.
    """
    check_count("seeds", seeds)
    rules, given, data = load_policy(policy), execution_of(execution), data or {}
    resolved = {one.text: one for one in (resolve(s, Path(runs)) for s in (against, *sources))}
    for one in resolved.values():
        check_legal(one, rules)
    if unknown := set(data) - set(tasks):
        raise ConfigError(
            f"data: found {', '.join(sorted(unknown))}; expected tasks among {', '.join(tasks)}."
        )
    loaded = [load_task(name, data=data.get(name)) for name in tasks]
    found: dict[str, list[Training]] = {}
    absent: dict[str, dict[str, str]] = {}
    for task in loaded:
        reasons = {text: reason_against(one.genome, task) for text, one in resolved.items()}
        absent[task.name] = {text: why for text, why in reasons.items() if why}
        here = [one for text, one in resolved.items() if text not in absent[task.name]]
        own = found[task.name] = []
        for training in trainings_of(here, task, given, seeds, seed, record) if here else ():
            own.append(training)
            if heard is not None:
                heard(task.name, training)
    return benchmark_answer(list(resolved), found, absent, seeds)


def reason_against(genome: Genome, task: Task) -> str:
    """Why a mechanism cannot be trained under a task, or nothing."""
    try:
        plan = make_plan(genome, task.sizes)
    except GenomeError as error:
        return str(error)
    if task.is_causal and plan.unsafe:
        return f"{', '.join(plan.unsafe)}: sees later tokens, in a causal task."
    return ""
