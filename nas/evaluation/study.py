"""Train mechanisms under a task, each with several seeds, without a search."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from nas.common.errors import NasError
from nas.costs import CostContext, costs_of
from nas.evaluation.trial import (
    Evaluation,
    Evaluator,
    Purpose,
    Training,
    Trial,
    run_trials,
    task_fingerprint,
    training_seed,
)
from nas.genome import Genome
from nas.tasks import Data, Task

# Names from which training seeds derive, by purpose; "study" for all other purposes.
SEED_NAMES: Final = {"explain": "explain"}


def study(
    mechanisms: Sequence[tuple[str, Genome]],
    task: Task,
    data: Data,
    evaluator: Evaluator,
    *,
    repeats: int,
    seed: int = 0,
    first: int = 0,
    purpose: Purpose = "evaluate",
    known: Iterable[Training] = (),
) -> Iterator[Training]:
    """Train every mechanism ``repeats`` times, and yield trainings as they finish.

    Training seeds derive from ``seed``, the purpose and the repeat alone: all mechanisms share the
    initial weights of the model and the order of examples, so that differences are due to the
    mechanism. (In a search, which selects the best of many, each candidate has its own seeds.)

    Args:
        first: the first repeat to train.
        purpose: of the trainings; explanations have seeds of their own.
        known: recorded trainings. Those of this purpose and task that did not fail are yielded
            first, and are not trained again.

    Raises:
        GenomeError: a mechanism does not exist at the task's sizes.
    """
    model = task.main
    context = CostContext(model.sizes, model.qkv_bias, model.is_causal, calibration={})
    place = task_fingerprint(task, data)
    recorded = {
        (training.key, training.evaluation.seed): training.evaluation
        for training in known
        if (training.purpose, training.task) == (purpose, place)
        and training.evaluation.status != "failed"
    }
    forms = []
    for name, genome in mechanisms:
        resolved = task.resolve(genome)
        forms.append((name, resolved, costs_of(resolved, context, ["macs"])["macs"]))
    trials: dict[tuple[str, int], Trial] = {}
    labels: dict[tuple[str, int], list[tuple[str, str, int]]] = {}
    for repeat in range(first, repeats):
        seed_of_repeat = training_seed(seed, SEED_NAMES.get(purpose, "study"), repeat)
        for name, resolved, work in forms:
            # Two names of one mechanism at these sizes are trained once and reported twice.
            key = resolved.key
            trial = Trial(key, resolved.genome, seed_of_repeat, repeat, work=work)
            trials.setdefault((key, seed_of_repeat), trial)
            labels.setdefault((key, seed_of_repeat), []).append((name, resolved.digest, repeat))

    def reports(key: str, seed: int, evaluation: Evaluation) -> Iterator[Training]:
        for name, digest, repeat in labels[key, seed]:
            yield Training(purpose, place, task.name, key, name, repeat, evaluation, digest=digest)

    for pair in [pair for pair in trials if pair in recorded]:
        del trials[pair]
        yield from reports(*pair, recorded[pair])
    for trial, evaluation in run_trials(evaluator, list(trials.values())):
        yield from reports(trial.key, trial.seed, evaluation)


def why_not(genome: Genome, task: Task) -> str:
    """The reason that a mechanism cannot be trained under a task; empty if it can."""
    try:
        plan = task.resolve(genome).plan
    except NasError as error:
        return str(error)
    if task.main.is_causal and plan.unsafe:
        return f"{', '.join(plan.unsafe)}: sees later tokens, in a causal task."
    return ""
