"""Tabulate: train every mechanism of a space, so that searches of it are replayed in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nas.api.execution import check_one_model, execution_of, task_of
from nas.common.errors import TableError
from nas.costs import costs_of
from nas.evaluation.execution import make_evaluator
from nas.evaluation.journal import JournaledEvaluator
from nas.report.trials import TrainingRow
from nas.searching.setup import check_count, setting_of
from nas.searching.tabular.making import mechanisms_of, table_of, train_table
from nas.searching.tabular.table import SUFFIX
from nas.space import load_space
from nas.store.frozen import frozen_space, frozen_task
from nas.store.sources import resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Unpack

    from nas.api.execution import Executing
    from nas.evaluation.trial import Evaluation, Trial
    from nas.genome import Genome
    from nas.searching.tabular.table import Table
    from nas.tasks import Task


def tabulate(
    space: str,
    path: str | Path,
    sources: Sequence[str | Path | Genome] = (),
    *,
    about: str = "",
    task: str | None = None,
    data: str | None = None,
    seeds: int = 3,
    limit: int | None = None,
    on_training: Callable[[TrainingRow, int, int], None] | None = None,
    command: str = "nas.tabulate",
    **execution: Unpack[Executing],
) -> Table:
    """Train every mechanism of a space with several seeds, and write what came of it as a table.

    Each training is kept in a file beside the table as it ends, so that the same call goes on
    where one was stopped.

    Args:
        space: a search space, by name or path; all of it is enumerated.
        path: of the table, NAME.json.gz.
        sources: mechanisms of the space, as SOURCE strings or genomes, in place of all.
        about: a sentence for people.
        task: a task, by name or path; the space's own by default.
        limit: the first so many of the space, in an order drawn once.
        on_training: called with each training that ends, how many have, and how many there are.

    Raises:
        NasError: something given cannot be used; the message says what and why.
    """
    check_count("seeds", seeds)
    given, path = execution_of(execution), Path(path)
    if not path.name.endswith(SUFFIX) or path.name == SUFFIX:
        raise TableError(f"{path}: expected a name that ends in {SUFFIX}.")
    if limit is not None:
        check_count("limit", limit)
    chosen = load_space(space)
    trained = task_of(chosen, task, data)
    check_one_model(trained)
    mechanisms = mechanisms_of(chosen, trained, None if sources else limit)
    if sources:
        mechanisms = _only(mechanisms, [resolve(s).genome for s in sources], trained, chosen.name)
    loaded, name = trained.load(), path.name.removesuffix(SUFFIX)
    metric, setting = trained.metrics(loaded)[0], setting_of(trained, {})
    total, done = seeds * len(mechanisms), 0

    def finished(trial: Trial, evaluation: Evaluation) -> None:
        nonlocal done
        done += 1
        if on_training is not None:
            what = (trial.key[:8], trial.key, trial.repeat, evaluation)
            costs = costs_of(setting.resolve(trial.genome), setting)
            on_training(TrainingRow(*what, costs=costs, metric=metric), done, total)

    evaluator = make_evaluator(given, trained, loaded)
    try:
        evaluator = JournaledEvaluator(evaluator, path.with_name(f"{name}.jsonl"), trained, loaded)
        found = train_table(mechanisms, trained, evaluator, seeds=seeds, on_training=finished)
    finally:
        evaluator.close()
    documents = (*frozen_space(chosen), frozen_task(trained, loaded))
    table = table_of(name, about, documents, mechanisms, found, command)
    table.write(path)
    return table


def _only(
    mechanisms: Mapping[str, Genome], genomes: Sequence[Genome], task: Task, space: str
) -> dict[str, Genome]:
    """Those mechanisms of a space that genomes mean."""
    found = {}
    for genome in genomes:
        key = task.resolve(genome).key
        if key not in mechanisms:
            raise TableError(f"mechanism {key} is not in the space {space}.")
        found[key] = mechanisms[key]
    return found
