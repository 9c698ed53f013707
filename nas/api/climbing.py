"""``nas.ladder``: compare mechanisms with a reference at several sizes of a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Unpack

from nas.api.comparing import train_and_compare
from nas.api.execution import DEFAULT_POLICY, Executing, resolve_legal, task_for
from nas.common.arguments import public
from nas.common.errors import ConfigError
from nas.common.objectives import MAX_SEED, check_count
from nas.common.scaling import LEAST_SIZES
from nas.evaluation.execution import Execution, make_evaluator
from nas.evaluation.step_times import macs_beside_attention, step_times
from nas.evaluation.study import cost_context, costs_under, on_demand, resolve_under, tries_rates
from nas.evaluation.trainer import budget_of
from nas.evaluation.trial import task_fingerprint
from nas.genome import Genome
from nas.report.comparison import TrainingRow
from nas.report.ladder import Ladder, loss_pairs, make_ladder
from nas.store import RUNS
from nas.store.sources import labelled
from nas.store.writer import RunRecord, record_file
from nas.tasks import Data, ModelTask
from nas.tasks.sizes import resized
from nas.training.user_module import Mechanism

SIZES: Final = (0.04, 0.2, 1.0, 5.0)
MOST_COMPUTE: Final = 1000
DEFAULT_TASK: Final = "text"
STEP_FLOPS: Final = 6  # of a training step, for each multiply-add of the forward pass


@public
def ladder(
    sources: str | Path | Genome | Sequence[str | Path | Genome],
    *,
    against: str | Path | Genome | None = None,
    task: str | None = None,
    sizes: Sequence[float] = SIZES,
    data: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    seeds: int = 3,
    seed: int = 0,
    rates: bool | None = None,
    policy: str = DEFAULT_POLICY,
    record: str | Path | None = None,
    runs: str | Path = RUNS,
    on_training: Callable[[TrainingRow, int, int], None] | None = None,
    on_timing: Callable[[str], None] | None = None,
    **execution: Unpack[Executing],
) -> Ladder:
    """Train mechanisms and a reference at several sizes, and estimate effective speed-ups.

    The effective speed-up of a mechanism is how many times its training time the reference would
    need for the same loss (``nas.common.scaling``). The same call continues an interrupted ladder,
    and one with further mechanisms or sizes repeats no training: without a record, a file in the
    folder ``ladders`` of ``runs`` stores the trainings of a task.

    Examples:
        >>> options = {"seeds": 2, "rates": False, "backend": "local"}
        >>> result = nas.ladder("uniform", task="tiny.yaml", sizes=[1, 4, 16], **options)
        >>> len(result.rungs)
        6

    Args:
        task: by default that of the run of the first source that names one, or text.
        sizes: compute of each size over that of the task, three or more in ascending order. Weights
            and examples grow with its square root (``nas.tasks.sizes``).
        on_timing: called with the name of a size before training steps are timed there.
        Others: see ``nas.api.execution``.

    Raises:
        ConfigError: a mechanism cannot be trained at any size, or the reference not at all sizes;
            or a user's module fails while training steps are timed.
    """
    check_count("seeds", seeds, 2)
    check_count("seed", seed, 0, MAX_SEED)
    is_ladder = len(sizes) >= LEAST_SIZES and [*sizes] == sorted({*sizes})
    if not (is_ladder and all(0 < size <= MOST_COMPUTE for size in sizes)):
        raise ConfigError(
            f"sizes: found {[*sizes]}; expected {LEAST_SIZES} or more ascending numbers, above 0 "
            f"and up to {MOST_COMPUTE:,}."
        )
    options = Execution(**execution)
    given = [sources] if isinstance(sources, str | Path | Genome) else [*sources]
    check_count("number of sources", len(given))
    compared = resolve_legal(given, policy, runs)
    base = task_for(compared, task, data, overrides, default=DEFAULT_TASK)
    reference, *_ = resolve_legal([base.reference if against is None else against], policy, runs)
    named = labelled((reference, *compared))
    check_count("number of mechanisms, with the reference", len(named), 2)
    tasks = {each.name: each for each in (resized(base, size) for size in sizes)}
    if len(tasks) < len(sizes):
        raise ConfigError(f"sizes: some of {[*sizes]} give the same model; expected wider steps.")
    examples, is_generated = base.load(), base.data == "synthetic"  # enough for one training
    data_of = {name: each.load() if is_generated else examples for name, each in tasks.items()}
    flops = {name: _flops(reference.mechanism, each, data_of[name]) for name, each in tasks.items()}
    file = record or record_file(Path(runs) / "ladders", task_fingerprint(base, examples))
    is_tuned = tries_rates(rates, tasks.values(), seeds, is_tested=False)
    with RunRecord([source.run for source in compared if source.run], file) as recorded:
        comparison = train_and_compare(
            named, tasks, data_of, recorded, options, seeds, seed, is_tuned, on_training
        )
    hardware, times = "", dict[str, dict[str, list[float]]]()
    at_once = on_demand(partial(make_evaluator, replace(options, workers=1), base, examples))
    with at_once as evaluator:
        for size, each in tasks.items():
            scored = [name for name in named if len(loss_pairs(comparison, size, name)) > 1]
            if len(scored) > 1:
                if on_timing:
                    on_timing(size)
                mechanisms = [named[name] for name in scored]
                measure = partial(step_times, mechanisms, each, data_of[size], options.time_limit)
                hardware, steps = evaluator().measure(measure)
                times[size] = dict(zip(scored, steps, strict=True))
    return make_ladder(comparison, flops, times, hardware)


def _flops(reference: Mechanism, task: ModelTask, data: Data) -> float:
    macs = costs_under(resolve_under(task, reference), cost_context(task), ["macs"])["macs"]
    budget = budget_of(task, data)
    return STEP_FLOPS * (macs + macs_beside_attention(task, data)) * budget.epochs * budget.examples
