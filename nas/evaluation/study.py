"""Train given mechanisms under a task, each with several seeds: no search, no run."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean, stdev
from typing import TYPE_CHECKING

from nas.canonical import canonicalise, digest, resolved_digest
from nas.costs import Setting, costs_of
from nas.evaluation.trial import Trial, run_trials, training_seed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nas.evaluation.trial import Evaluation, Evaluator
    from nas.genome import Genome
    from nas.tasks import Task


@dataclass(frozen=True)
class Result:
    """What one training of one mechanism gave: which, the how-manieth from 0, and the answer."""

    name: str
    digest: str
    repeat: int
    evaluation: Evaluation


def study(
    mechanisms: Sequence[tuple[str, Genome]],
    task: Task,
    evaluator: Evaluator,
    *,
    repeats: int,
    seed: int = 0,
) -> Iterator[Result]:
    """Train every mechanism ``repeats`` times; results come as they finish.

    Training seeds derive from ``seed`` and the repeat alone: mechanisms meet the same start of the
    model and the same order of examples, so that what differs is the mechanism. (A search, where
    the best of many is taken, gives every candidate a start of its own.)

    Raises:
        GenomeError: a mechanism does not exist at the task's sizes.
    """
    trials: dict[tuple[str, int], Trial] = {}
    meaning: dict[tuple[str, int], list[tuple[str, str]]] = {}
    setting = Setting(task.sizes, task.qkv_bias, task.is_causal, calibration={})
    for name, given in mechanisms:
        genome = canonicalise(given, task.sizes, is_causal=task.is_causal)
        key = resolved_digest(genome, task.sizes, is_causal=task.is_causal)
        work = costs_of(genome, setting, ["macs"])["macs"]
        for repeat in range(repeats):
            own = training_seed(seed, "study", repeat)
            # Two names of one mechanism at this size are trained once and reported twice.
            trials.setdefault((key, repeat), Trial(key, genome, own, work=work))
            meaning.setdefault((key, repeat), []).append((name, digest(genome)))
    repeat_of = {training_seed(seed, "study", repeat): repeat for repeat in range(repeats)}
    ordered = sorted(trials.items(), key=lambda entry: entry[0][1])  # stable: repeat by repeat
    for trial, evaluation in run_trials(evaluator, [trial for _, trial in ordered]):
        repeat = repeat_of[trial.seed]
        for name, own_digest in meaning[trial.key, repeat]:
            yield Result(name, own_digest, repeat, evaluation)


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean and its standard error; None where a single value has none."""
    return mean(values), stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
