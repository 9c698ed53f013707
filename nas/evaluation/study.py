"""Train mechanisms under a task, each with several seeds, without a search."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from nas.common.errors import NasError
from nas.compiler import ResolvedGenome
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
    """Train every mechanism with several seeds, and yield trainings as they finish.

    Repeat i of every mechanism has the same training seed. All mechanisms therefore share the
    model's initial weights and the order of examples, so that differences are due to the
    mechanism. (In a search, which selects the best of many, each candidate has different seeds.)

    Args:
        mechanisms: names and genomes. Equal mechanisms are trained once and yielded once per name.
        evaluator: trains the trials.
        repeats: end of the range of repeats: repeats ``first`` to ``repeats`` - 1 are trained.
        seed: seed from which the training seeds derive.
        first: first repeat to train.
        purpose: the command that runs the trainings. Training seeds for "explain" differ from
            those for all other commands.
        known: earlier trainings. Those of this purpose and task that did not fail are yielded
            first, and are not run again.

    Raises:
        GenomeError: a mechanism does not exist at the task's width, heads or number of tokens.
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
    seeds_of = "explain" if purpose == "explain" else "study"
    resolved: dict[str, ResolvedGenome] = {}
    labels: dict[str, list[tuple[str, str]]] = {}
    for name, genome in mechanisms:
        form = task.resolve(genome)
        resolved.setdefault(form.key, form)
        labels.setdefault(form.key, []).append((name, form.digest))
    work = {key: costs_of(form, context, ["macs"])["macs"] for key, form in resolved.items()}
    trials = [
        Trial(key, form.genome, training_seed(seed, seeds_of, repeat), repeat, work=work[key])
        for repeat in range(first, repeats)
        for key, form in resolved.items()
    ]

    def trainings(trial: Trial, evaluation: Evaluation) -> Iterator[Training]:
        key, repeat = trial.key, trial.repeat
        for name, digest in labels[key]:
            yield Training(purpose, place, task.name, key, name, repeat, evaluation, digest=digest)

    new = []
    for trial in trials:
        if evaluation := recorded.get((trial.key, trial.seed)):
            yield from trainings(trial, evaluation)
        else:
            new.append(trial)
    for trial, evaluation in run_trials(evaluator, new):
        yield from trainings(trial, evaluation)


def why_not(genome: Genome, task: Task) -> str:
    """Return the reason why a mechanism cannot be trained under a task; empty if it can."""
    try:
        plan = task.resolve(genome).plan
    except NasError as error:
        return str(error)
    if task.main.is_causal and plan.unsafe:
        return f"{', '.join(plan.unsafe)}: sees later tokens, in a causal task."
    return ""
