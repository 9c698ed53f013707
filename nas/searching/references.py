"""What standard attention and the plain mean of all tokens score in each task of a suite.

Measured once, before a search: then each candidate's training knows its own regrets, and a record
says what they are relative to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nas.common.differences import mean_and_error
from nas.common.errors import RunError
from nas.common.objectives import of_metric
from nas.evaluation.study import study
from nas.genome.mechanisms import mechanism
from nas.tasks.suite import Reference

if TYPE_CHECKING:
    from collections.abc import Callable

    from nas.evaluation.trial import Evaluator
    from nas.tasks.base import Data, Task
    from nas.tasks.suite import Suite

TRAININGS: Final = 3  # of each
NAMES: Final = ("mha", "uniform")
LEAST: Final = 3.0  # standard errors by which the two must differ


def with_references(
    suite: Suite,
    data: Data,
    make_evaluator: Callable[[Task, Data], Evaluator],
    *,
    seed: int,
    heard: Callable[[int, int], None],
) -> Suite:
    """The suite, which knows what mha and ``uniform`` score in its members without a gate.

    Args:
        heard: told how many trainings have ended, and of how many.

    Raises:
        RunError: a training failed, or mha is not clearly better in one of them.
    """
    given = [(name, mechanism(name).genome) for name in NAMES]
    scores: dict[str, list[dict[str, float]]] = {name: [] for name in NAMES}
    open_suite = suite.without_gates()
    evaluator = make_evaluator(open_suite, data)
    try:
        found = study(given, open_suite, evaluator, repeats=TRAININGS, seed=seed)
        for done, one in enumerate(found, 1):
            if not one.evaluation.is_ok:
                raise RunError(
                    f"task {suite.name!r}: {one.name}, which regrets are relative to, could not be "
                    f"trained: {one.evaluation.error}"
                )
            scores[one.name].append(dict(one.evaluation.metrics))
            heard(done, len(NAMES) * TRAININGS)
    finally:
        evaluator.close()
    references = {}
    for name, task in suite.regret_tasks.items():
        metric = task.metrics(data.parts[name])[0]
        means, errors = zip(
            *(mean_and_error([row[f"{name}.{metric.name}"] for row in scores[n]]) for n in NAMES),
            strict=True,
        )
        error = sum((e or 0.0) ** 2 for e in errors) ** 0.5
        lead = of_metric(metric).as_cost(means[1] - means[0])
        if not lead > LEAST * error:
            raise RunError(
                f"task {suite.name!r}: in {name} standard attention is not clearly better than the "
                f"mean of all tokens ({metric.name} {means[0]:.4g} and {means[1]:.4g}, standard "
                f"error of the difference {error:.2g}), so there is no regret in it; expected a "
                "longer training or a gate."
            )
        references[name] = Reference(metric=metric.name, mha=means[0], uniform=means[1])
    return suite.with_references(references)
