"""Train given mechanisms under a task, each with several seeds: no search, no run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nas.common.errors import NasError
from nas.costs import CostContext, costs_of
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
    first: int = 0,
    purpose: str = "study",
) -> Iterator[Result]:
    """Train every mechanism ``repeats`` times; results come as they finish.

    Training seeds derive from ``seed``, the purpose and the repeat alone: mechanisms meet the same
    start of the model and the same order of examples, so that what differs is the mechanism. (A
    search, where the best of many is taken, gives every candidate a start of its own.)

    Args:
        first: the repeat to begin with, where earlier ones have been trained.
        purpose: trainings of another purpose have other seeds.

    Raises:
        GenomeError: a mechanism does not exist at the task's sizes.
    """
    given = []
    model = task.main
    setting = CostContext(model.sizes, model.qkv_bias, model.is_causal, calibration={})
    for name, genome in mechanisms:
        resolved = task.resolve(genome)
        given.append((name, resolved, costs_of(resolved, setting, ["macs"])["macs"]))
    trials: list[Trial] = []
    wanted: dict[tuple[str, int], list[tuple[str, str, int]]] = {}
    for repeat in range(first, repeats):
        own_seed = training_seed(seed, purpose, repeat)
        for name, resolved, work in given:
            # Two names of one mechanism at this size are trained once and reported twice.
            if (resolved.key, own_seed) not in wanted:
                trials.append(Trial(resolved.key, resolved.genome, own_seed, work=work))
            wanted.setdefault((resolved.key, own_seed), []).append((name, resolved.digest, repeat))
    for trial, evaluation in run_trials(evaluator, trials):
        for name, own_digest, repeat in wanted[trial.key, trial.seed]:
            yield Result(name, own_digest, repeat, evaluation)


def why_not(genome: Genome, task: Task) -> str:
    """Why a mechanism cannot be trained under a task, or nothing."""
    try:
        plan = task.resolve(genome).plan
    except NasError as error:
        return str(error)
    if task.main.is_causal and plan.unsafe:
        return f"{', '.join(plan.unsafe)}: sees later tokens, in a causal task."
    return ""
