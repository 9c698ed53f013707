"""The result of ``nas.confirm``: mechanisms trained again with seeds that the search never used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console

from nas.common.differences import LEVEL, Gain, difference, successful
from nas.common.objectives import Metric
from nas.common.text import plural
from nas.report.benchmark import SENSE, tuning_line
from nas.report.confirmation_scores import ConfirmationScores
from nas.report.result import MetricInfo, Result, TableResult
from nas.report.run_view import FRESH, ID_LENGTH, spread_answer
from nas.report.table import TextColumn, say, say_table
from nas.report.trials import MEASURED, UNDECIDED, cost_cell
from nas.report.units import FRACTION, amount, gain_cell, header, points_between
from nas.searching.confirm import STANDARD, ComparedMechanism, ConfirmationPlan, ConfirmationStage
from nas.store import Run
from nas.tasks.suite import Suite
from nas.training.user_module import UserModule

BEST_RATES: Final = (
    "[]: 95 % confidence interval of the difference between mechanisms at their best rates. "
    f"?: undecided, which is not equal: p is {LEVEL} or more in the test of this difference alone. "
    "A mechanism with a failed training at each rate has no difference."
)


@dataclass(frozen=True)
class ConfirmRow(Result):
    """The results of one mechanism in a confirmation.

    A confirmation has up to three parts: "fresh" under the run's task, "long" under a longer task,
    and "test" on the test set. All parts use seeds that the search never used.

    Attributes:
        id: digest of the mechanism.
        name: name of the mechanism if it is a named mechanism, else None.
        score: mean of the metric over the mechanism's trainings in the search; None if there are
            none.
        estimate: value of the metric that the search's model predicts; None if there is none.
        error: standard error of ``estimate``.
        p: probability, by the estimates, that this mechanism is within the limits of the objectives
            and that no trained mechanism within them dominates it.
        fresh, long, test: ``mean``, standard ``error`` and ``values`` of the metric in each part;
            None if the part was not requested.
        over_mha: by part, ``mean``, standard ``error`` and ``values`` of the differences between
            this mechanism and standard attention at equal seeds, and ``verdict``: "better",
            "worse" or "undecided" by a test of this difference alone. Without a difference ``mean``
            and ``verdict`` are None. ``over_mha`` is None for standard attention.
        over_mha_in: by part and task of a suite of tasks, ``mean`` of these differences, bounds
            ``low`` and ``high`` of its confidence interval, and p-value ``p``; None for standard
            attention.
        over_against: the same as ``over_mha`` for the differences between this mechanism and
            ``ConfirmResult.against``; None for that mechanism itself, and if there is none.
        rates: by part, if learning rates were tried: ``chosen``, the rate of all values and
            differences (None if a training failed at each rate), and the ``means`` at each rate.
            Differences then have ``low``, ``high`` and ``p``, see ``nas.common.rates``, and
            ``verdict`` is the result of this test. None if rates were not tried.
        failed: number of failed trainings, by a text that states the part and the reason.
        costs: total costs of the attention layers of the model, by name of the cost.
        measured: whether the costs were measured, because the mechanism is a user's own torch
            module. Costs that cannot be measured are missing.
    """

    id: str
    name: str | None
    score: float | None
    estimate: float | None
    error: float | None
    p: float | None
    fresh: Mapping[str, Any] | None
    long: Mapping[str, Any] | None
    test: Mapping[str, Any] | None
    over_mha: Mapping[str, Any] | None
    over_mha_in: Mapping[str, Any] | None
    over_against: Mapping[str, Any] | None
    rates: Mapping[str, Any] | None
    failed: Mapping[str, int]
    costs: Mapping[str, float]
    measured: bool


@dataclass(frozen=True)
class ConfirmResult(TableResult):
    """The result of a confirmation: mechanisms trained again with seeds that the search never used.

    Attributes:
        run: name of the run.
        seeds: number of trainings of each mechanism in each part (see ``ConfirmRow``).
        tuning: if learning rates were tried, ``trainings``, the number of further trainings (at
            other rates, or to choose the rate), and their ``core_seconds``; else None.
        metric: first metric of the run.
        tasks: name of the task of each requested part.
        judged: for each part whose task is a suite of tasks, ``unit`` and ``direction`` of the
            metric of each task, by name of the metric.
        members: the selected mechanisms of the run's Pareto front, best mechanism first, then the
            controls: standard attention and ``uniform``. The mechanism ``against`` is the last,
            unless it is one of these.
        against: argument SOURCE that names a further mechanism to compare with; None if there is
            none.
    """

    run: str
    seeds: int
    tuning: Mapping[str, float] | None
    metric: MetricInfo
    tasks: Mapping[str, str]
    judged: Mapping[str, Mapping[str, Mapping[str, str]]]
    members: tuple[ConfirmRow, ...]
    against: str | None

    @property
    def is_ok(self) -> bool:
        """Whether at least one training succeeded."""
        parts = (getattr(row, part) for row in self.members for part in FRESH.values())
        return any(part and part["values"] for part in parts)

    def records(self) -> list[dict[str, Any]]:
        """Return a dict for each mechanism, with the names of table columns as keys."""
        records = []
        for row in self.members:
            record = {n: getattr(row, n) for n in ("id", "name", "score", "estimate", "error", "p")}
            for part in self.tasks:
                if row.rates is not None:
                    record[f"{part}_learning_rate"] = row.rates[part]["chosen"]
                values, over = getattr(row, part) or {}, (row.over_mha or {}).get(part) or {}
                over_against = (row.over_against or {}).get(part) or {}
                for name in ("mean", "error"):
                    record[f"{part}_{name}"] = values.get(name)
                    record[f"{part}_over_mha_{name}"] = over.get(name)
                    record[f"{part}_over_against_{name}"] = over_against.get(name)
                record[f"{part}_over_mha_verdict"] = over.get("verdict")
                record[f"{part}_over_against_verdict"] = over_against.get("verdict")
            records.append({**record, **row.costs})
        return records


def make_confirmation(run: Run, plan: ConfirmationPlan) -> ConfirmResult:
    """Return the result of a confirmation, computed from the trainings recorded in its run."""
    metric, scores = plan.metric, ConfirmationScores.read(run, plan)
    standard = next(c.key for c in plan.candidates if c.proposal.name == STANDARD)
    against = plan.against.key if plan.against else None
    known = {candidate.key: candidate for candidate in plan.candidates}
    judged = {FRESH[stage.part]: _suite_metrics(stage) for stage in plan.stages}

    def row(mechanism: ComparedMechanism) -> ConfirmRow:
        key, candidate = mechanism.key, known.get(mechanism.key)
        parts: dict[str, Any] = dict.fromkeys(FRESH.values())
        for part in scores.trained:
            values = successful(scores.values(part, key, metric.name))
            parts[FRESH[part]] = spread_answer([*values.values()])
        over_mha_in = None
        if key != standard:
            over_mha_in = {
                shown: {
                    m.name: difference(scores.over(part, key, standard, m.name))
                    for m in judged[shown]
                }
                for part, shown in FRESH.items()
                if judged.get(shown)
            }
        return ConfirmRow(
            id=mechanism.digest,
            name=mechanism.name or None,
            score=candidate.scores.get(metric.name) if candidate else None,
            estimate=candidate.objectives.get(metric.name) if candidate else None,
            error=candidate.errors.get(metric.name) if candidate else None,
            p=candidate.p if candidate else None,
            **parts,
            over_mha=scores.leads(key, standard),
            over_mha_in=over_mha_in,
            over_against=scores.leads(key, against),
            rates=scores.rates(key),
            failed=scores.failed(key),
            costs=dict(mechanism.costs),
            measured=isinstance(mechanism.mechanism, UserModule),
        )

    return ConfirmResult(
        run=run.name,
        seeds=plan.seeds,
        tuning=scores.tuning(),
        metric=MetricInfo.of(metric),
        tasks={FRESH[stage.part]: stage.task.name for stage in plan.stages},
        judged={
            part: {m.name: {"unit": m.unit, "direction": m.direction} for m in metrics}
            for part, metrics in judged.items()
            if metrics
        },
        members=tuple(map(row, plan.trained.values())),
        against=plan.against.name if plan.against else None,
    )


def _suite_metrics(stage: ConfirmationStage) -> tuple[Metric, ...]:
    """Return the first metric of each task of a suite; empty if the stage has a single task."""
    if not isinstance(stage.task, Suite):
        return ()
    names = {f"{name}.{ref.metric}" for name, ref in stage.task.references.items()}
    return tuple(metric for metric in stage.task.metrics(stage.data) if metric.name in names)


def confirmation_table(console: Console, result: ConfirmResult) -> None:
    """Print a table of the mechanisms' metrics, differences to standard attention, and costs."""
    unit, members = result.metric.unit, result.members

    def value(mean: float | None, error: float | None = None) -> str:
        return "-" if mean is None else amount(mean, unit, error)

    columns = [
        TextColumn("mechanism", [_label(row) for row in members]),
        TextColumn("score", [value(row.score) for row in members], "right"),
        TextColumn("estimate", [value(row.estimate, row.error) for row in members], "right"),
    ]
    for part in result.tasks:
        spreads = [getattr(row, part) for row in members]
        cells = [f"{value(s['mean'], s['error'])} ({len(s['values'])})" for s in spreads]
        columns.append(TextColumn(part, cells, "right"))
        if result.tuning is not None:
            chosen = [row.rates[part]["chosen"] if row.rates else None for row in members]
            shown = ["-" if rate is None else f"{rate:g}" for rate in chosen]
            columns.append(TextColumn("rate", shown, "right", rank=1))
        for name, leads in _comparisons(result):
            over = [_gain_text(lead and lead[part], unit) for lead in leads]
            columns.append(TextColumn(f"over {name}", over, "right", rank=1))
    for cost in members[0].costs:
        shown = [cost_cell(row.costs, cost, is_measured=row.measured) for row in members]
        columns.append(TextColumn(header(cost), shown, "right", rank=2))
    under = ", ".join(f"{part}: task {task}" for part, task in result.tasks.items())
    say(console, f"{header(result.metric.name, unit)} in run {result.run}; {under}", "")
    say_table(console, columns)
    what = "points" if unit == FRACTION else result.metric.name
    say(
        console,
        "",
        "score: mean of the search's own trainings; estimate: what the search believes.",
        "±: standard error, of a mean over so many (in brackets) fresh seeds.",
        *(
            f"over {name}: difference in {what}, between trainings that share their seed."
            for name, _ in _comparisons(result)
        ),
        *([UNDECIDED] if result.tuning is None else [tuning_line(result.tuning), BEST_RATES]),
    )
    if any(row.measured for row in members):
        say(console, MEASURED)
    for part, judged in result.judged.items():
        _show_differences(console, members, part, judged)
    for row in members:
        for reason, count in row.failed.items():
            say(console, f"{_label(row)}, {plural(count, 'training')} failed, {reason}")
    if result.tasks.keys().isdisjoint(("long", "test")):
        say(
            console,
            "Leads often shrink under longer training: `nas confirm --long TASK` or, for a suite "
            "of tasks, `nas benchmark RUN/ID --tasks TASK` tests it.",
        )
    if "test" in result.tasks:
        say(console, "test: judged on the data's test set, which no search sees.")


def _gain_text(answer: Mapping[str, Any] | None, unit: str) -> str:
    """Return a difference of ``ConfirmRow`` as text, with its interval if rates were tried."""
    if answer is None or answer["mean"] is None:
        return gain_cell(None, unit)
    gain = Gain(answer["mean"], answer["error"], answer["verdict"])
    is_interval = answer.get("low") is not None
    return gain_cell(gain, unit, (answer["low"], answer["high"]) if is_interval else None)


def _comparisons(
    result: ConfirmResult,
) -> list[tuple[str, list[Mapping[str, Any] | None]]]:
    """Return the names of the mechanisms to compare with, each with the differences of all rows."""
    named = [(STANDARD, [row.over_mha for row in result.members])]
    if result.against not in {None, STANDARD}:
        named.append((str(result.against), [row.over_against for row in result.members]))
    return named


def _show_differences(
    console: Console,
    members: Sequence[ConfirmRow],
    part: str,
    judged: Mapping[str, Mapping[str, str]],
) -> None:
    compared = [(row, row.over_mha_in[part]) for row in members if row.over_mha_in is not None]
    columns = [TextColumn("mechanism", [_label(row) for row, _ in compared])]
    for name, metric in judged.items():
        cells = [
            points_between(lead["mean"], lead["low"], lead["high"], metric["unit"]) if lead else "-"
            for lead in (over[name] for _, over in compared)
        ]
        columns.append(TextColumn(f"{name} over {STANDARD}", cells, "right"))
    say(console, "", f"{part}, each task, with the interval that holds in 95 of 100 cases", "")
    say_table(console, columns)
    senses = [
        f"{name}: {'points, ' if m['unit'] == FRACTION else ''}{SENSE[m['direction']]}"
        for name, m in judged.items()
    ]
    say(console, "", "; ".join(senses) + ".")


def _label(row: ConfirmRow) -> str:
    return row.name or row.id[:ID_LENGTH]
