"""``nas.judge``: decide whether one mechanism, such as a user's own module, beats another."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final, Unpack

from nas.api.comparing import train, untrainable
from nas.api.execution import DEFAULT_POLICY, Executing, resolve_legal, task_for
from nas.common.arguments import public
from nas.common.errors import ConfigError, NasWarning
from nas.common.objectives import Metric, check_count
from nas.common.rates import CHOOSING_SEEDS
from nas.common.sequential import Claim, decide
from nas.common.text import plural
from nas.evaluation.execution import Execution, make_evaluator
from nas.evaluation.study import resolve_under
from nas.evaluation.trial import Training, task_fingerprint, training_seed
from nas.genome import Genome
from nas.report.comparison import TrainingRow, tuned_scores
from nas.report.judgement import Judgement, make_judgement
from nas.store import RUNS
from nas.store.sources import labelled
from nas.store.writer import RunRecord, record_file
from nas.tasks import ModelTask

PLACES: Final = 50  # mechanisms of a record over which the probability of false claims is bounded


@public
def judge(
    source: str | Path | Genome,
    *,
    against: str | Path | Genome | None = None,
    task: str | None = None,
    data: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    claim: Claim = "typical",
    pairs: int = 40,
    minutes: float = 10.0,
    rates: bool | None = None,
    policy: str = DEFAULT_POLICY,
    record: str | Path | None = None,
    runs: str | Path = RUNS,
    on_training: Callable[[TrainingRow, int, int], None] | None = None,
    **execution: Unpack[Executing],
) -> Judgement:
    """Train a mechanism and a reference in pairs until one is shown to be better.

    A pair is two trainings that share their seed. Each mechanism has seeds of its own, at which the
    reference is trained again, so that no result depends on the luck of earlier trainings. The
    first large e-value of a claim (``nas.common.sequential``) ends the pairs.

    If the task offers learning rates, two further seeds choose one for each of the two. The claim
    then needs such an e-value against the other mechanism at each of its rates, which is trained at
    the other ones once the pairs at the chosen rates have ended.

    The probability of a false claim is at most 5 %, for gains of any distribution. With a record,
    this is the probability of any false claim about the first 50 mechanisms that the record
    compares with one reference under one task, so that an edit of a module may be chosen by the
    results of the earlier ones. Without a record a file in the folder ``judgements`` of ``runs``
    stores the trainings of this comparison. The same call continues an undecided judgement.

    Examples:
        >>> result = nas.judge("uniform", task="tiny.yaml", pairs=2, backend="local")
        >>> result.verdict, result.pairs
        ('undecided', 2)

    Args:
        claim: "typical": the module wins at more seeds than it loses; "mean": its mean gain is
            positive, rare failures included, which needs many more pairs.
        pairs: number of pairs after which the judgement ends undecided.
        minutes: time after which no further pairs begin.
        rates: by default whether the task offers learning rates and ``pairs`` permit a claim.
        on_training: the total with which it is called is the largest possible one.
        Others: see ``nas.api.execution``.

    Raises:
        ConfigError: a module cannot be trained, or sees later tokens after a training; both
            mechanisms are the same; or the record has trainings of 50 other mechanisms.
    """
    check_count("pairs", pairs)
    if not minutes > 0:
        raise ConfigError(f"minutes: found {minutes:g}; expected a positive number.")
    options = Execution(**execution)
    sources = resolve_legal((source,) if against is None else (source, against), policy, runs)
    loaded = task_for(sources, task, data, overrides)
    if against is None:
        sources += resolve_legal((loaded.reference,), policy, runs)
    compared = reference, judged = sources[::-1]
    mechanisms = labelled(compared)
    untrainable(mechanisms, {loaded.name: loaded}, options.time_limit)
    base_key, key = (resolve_under(loaded, each.mechanism).key for each in compared)
    if key == base_key:
        raise ConfigError(f"{judged.text} and {reference.text} are the same mechanism.")
    base_name, name = mechanisms
    places = 1 if record is None else PLACES
    if rates is None:  # by default if so many pairs permit a claim
        permits = decide([1.0] * pairs, claim, 1.0, places).verdict == "better"
        rates = bool(loaded.learning_rates) and permits
    grid = [*loaded.at_rates()] if rates else []
    examples, began, seed = loaded.load(), time.monotonic(), training_seed(0, f"judge {key}", 0)
    metric, rows = loaded.metrics(examples)[0], dict[tuple[str, float | None, int], TrainingRow]()
    place_of_task = task_fingerprint(loaded, examples)
    file = record or record_file(Path(runs) / "judgements", key, base_key, place_of_task)
    with (
        RunRecord([], file) as recorded,
        closing(make_evaluator(options, loaded, examples)) as evaluator,
    ):
        known = recorded.trainings("evaluate")
        if record is None and known:
            text = f"continues a judgement of {plural(len(known), 'training')}, stored in {file}."
            warnings.warn(text, NasWarning, stacklevel=2)
        result_of = partial(
            make_judgement,
            name,
            base_name,
            loaded.name,
            metric=metric,
            claim=claim,
            place=_place(file, key, [t for t in known if t.task == place_of_task], base_key),
            places=places,
        )

        def train_at(repeats: range, at: Mapping[str, Iterable[float]]) -> None:
            missing = {
                name: [rate for rate in rates if (name, rate, repeats.start) not in rows]
                for name, rates in at.items()
            }
            where = loaded, examples, lambda: evaluator, recorded, repeats, seed
            for _, row in train([*mechanisms.items()], *where, rates=missing or None):
                if row.evaluation.reason == "leak":
                    raise ConfigError(f"{row.mechanism}: {row.evaluation.error}")
                rows[row.mechanism, row.learning_rate, row.repeat] = row
                if on_training is not None:
                    on_training(row, len(rows), most)

        choosing = range(CHOOSING_SEEDS if grid else 0)
        most = 2 * len(grid) * len(choosing) + max(2, 1 + len(grid)) * pairs
        chosen: dict[str, float] = {}
        if grid:
            train_at(choosing, dict.fromkeys(mechanisms, grid))
            chosen = {name: _chosen(name, rows.values(), loaded, metric) for name in mechanisms}
        return _train_pairs(
            train_at,
            lambda: result_of(rows=rows.values(), chosen=chosen),
            chosen,
            range(choosing.stop, choosing.stop + pairs),
            max(1, evaluator.workers // 2),
            lambda: time.monotonic() - began > 60 * minutes,
        )


def _train_pairs(
    train_at: Callable[[range, Mapping[str, Iterable[float]]], None],
    result_of: Callable[[], Judgement],
    chosen: Mapping[str, float],
    repeats: range,
    step: int,
    is_late: Callable[[], bool],
) -> Judgement:
    """Train pairs at the chosen rates, then also the losing side at its other rates.

    The latter are trained with the seeds of the pairs, from the first one.
    """
    others: Mapping[str, Sequence[float]] = {}
    first = repeats.start
    while True:
        batch = range(first, min(first + step, repeats.stop))
        train_at(batch, {name: [rate, *others.get(name, ())] for name, rate in chosen.items()})
        result, first = result_of(), batch.stop
        if result.unbeaten.keys() - others:
            first = repeats.start
        others = result.unbeaten
        if result.verdict != "undecided" or is_late() or first == repeats.stop:
            return result


def _place(file: str | Path, key: str, known: Iterable[Training], base_key: str) -> int:
    others = {training.key: None for training in known if training.key != base_key}
    place = [*others, key].index(key) + 1
    if place > PLACES:
        raise ConfigError(
            f"{file}: holds trainings of {PLACES} other mechanisms, for which the probability of "
            "false claims is bounded; expected a new record."
        )
    return place


def _chosen(name: str, rows: Iterable[TrainingRow], task: ModelTask, metric: Metric) -> float:
    tuned = tuned_scores([row for row in rows if row.mechanism == name], metric)
    return task.learning_rate if tuned is None else tuned.rate
