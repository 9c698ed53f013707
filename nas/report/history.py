"""Training results and ancestors of a genome of a run, as tables and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from nas.common.text import last_line, plural
from nas.evaluation.trial import Incident, Training
from nas.report.run_view import id_length, on_gpu, outside_text, p_front
from nas.report.table import TextColumn, named_values
from nas.report.units import amount, duration, header, human
from nas.store import Candidate, Proposal, RunSetup, lineage, open_run

MAX_ANCESTORS: Final = 10
MIN_FORMULA: Final = 20


@dataclass(frozen=True)
class History:
    """Training results and ancestors of a genome of a run.

    Attributes:
        run: name of the run.
        ancestors: proposals of the genome itself, its parents, their parents, and so on, each once.
            Each proposal is paired with its results, or with None if its trainings did not succeed.
        trainings: the genome's trainings in the search, those under its target task last.
        incidents: worker failures during these trainings.
        id_length: number of characters that distinguish the run's digests.
    """

    run: str
    setup: RunSetup
    ancestors: tuple[tuple[Proposal, Candidate | None], ...]
    trainings: tuple[Training, ...]
    incidents: tuple[Incident, ...]
    id_length: int

    @property
    def more(self) -> list[str]:
        """A list of one line that counts the omitted ancestors; empty if none is omitted."""
        hidden = len(self.ancestors) - MAX_ANCESTORS
        return [f"... and {plural(hidden, 'more ancestor')}."] if hidden > 0 else []

    def to_dict(self) -> dict[str, Any]:
        """Return the results and ancestors as entries of the JSON object of ``nas show``."""
        entries = [
            {
                "id": proposal.digest,
                "generation": self.generation(proposal),
                "operator": proposal.operator,
                "name": proposal.name,
                "parents": list(proposal.parents),
                "formula": proposal.formula,
                "objectives": dict(candidate.objectives) if candidate else None,
            }
            for proposal, candidate in self.ancestors
        ]
        _, candidate = self.ancestors[0]
        keys = ("generation", "operator", "name", "parents", "objectives")
        return {
            "run": self.run,
            **{name: entries[0][name] for name in keys},
            "standard_errors": dict(candidate.errors) if candidate else None,
            "scores": dict(candidate.scores) if candidate else None,
            "p_non_dominated": candidate.p if candidate else None,
            "incidents": [asdict(incident) for incident in self.incidents],
            "trainings": [training.to_dict() for training in self.trainings],
            "lineage": entries,
        }

    @property
    def by_task(self) -> dict[str, list[Training]]:
        """The genome's trainings by what distinguishes their titles.

        This is ", TASK" if the run has a target task, else an empty text.
        """
        groups: dict[str, list[Training]] = {}
        for training in self.trainings:
            title = f", {training.task_name}" if self.setup.target else ""
            groups.setdefault(title, []).append(training)
        return groups

    def generation(self, proposal: Proposal) -> int:
        """Return the index of the generation of a proposal, from 0 as in the record."""
        return proposal.number // self.setup.config.population


def history_of(folder: Path, digest: str) -> History:
    """Return training results and ancestors of a genome, read from a run's folder."""
    with open_run(folder) as run, run.snapshot():
        proposals = lineage(run, digest)
        key = proposals[0].key or ""
        by_key = {c.proposal.key: c for c in run.candidates() if c.is_ok}
        return History(
            run=run.name,
            setup=run.setup,
            ancestors=tuple((p, by_key.get(p.key)) for p in proposals),
            trainings=(*run.trainings(key=key), *run.trainings("target", key=key)),
            incidents=tuple(incident for incident in run.incidents() if incident.key == key),
            id_length=id_length(run.digests()),
        )


def results(history: History) -> list[TextColumn]:
    """Return origin and training results of the genome as a table of names and values."""
    (proposal, candidate), setup = history.ancestors[0], history.setup
    # People count generations from 1, as the live display does.
    generation = history.generation(proposal) + 1
    rows = [("proposed", f"generation {generation} by {_maker(proposal)}")]
    if candidate is not None:
        units = {name: setup.unit(name) for name in candidate.objectives}
        for name, unit in units.items():
            is_estimate = candidate.is_estimated and name in candidate.errors
            title = f"{header(name, unit)}, estimate" if is_estimate else header(name, unit)
            rows.append((title, _value(candidate, name, unit)))
        if candidate.p is not None and candidate.errors:
            for metric in (o for o in setup.objectives if o.name in candidate.scores):
                for task, group in history.by_task.items():
                    scores = [training.evaluation.metrics[metric.name] for training in group]
                    title = f"{header(metric.name, metric.unit)} by seed{task}"
                    rows.append((title, ", ".join(amount(score, metric.unit) for score in scores)))
            text = f"{candidate.p:.2f}: {p_front(setup.objectives)}"
            rows.append(("p(front)", text))
        if outside := outside_text(setup.objectives, candidate.objectives):
            rows.append(("limits", outside))
    for task, group in history.by_task.items():
        rows += _trained(history, task, group)
    if history.incidents:
        kinds = Counter(incident.kind for incident in history.incidents)
        causes = ", ".join(f"{kind} {count}" for kind, count in kinds.items())
        rows.append(("begun again", f"{plural(len(history.incidents), 'time')}: {causes}"))
    if not history.trainings:
        rows.append(("trained", proposal.note or "not yet"))
    return named_values(rows)


def lineage_columns(history: History) -> list[TextColumn]:
    """Return the columns of a table of the genome and its ancestors, one in each row."""
    shown, short = history.ancestors[:MAX_ANCESTORS], history.id_length
    proposals, first = [proposal for proposal, _ in shown], history.setup.objectives[0]
    parents = [" + ".join(digest[:short] for digest in p.parents) for p in proposals]
    values = [_value(c, first.name, first.unit) if c else "" for _, c in shown]
    return [
        TextColumn("id", [p.digest[:short] for p in proposals], style="cyan"),
        TextColumn("gen", [str(history.generation(p) + 1) for p in proposals], "right"),
        TextColumn("made by", [_maker(p) for p in proposals]),
        TextColumn("from", parents, rank=1),
        TextColumn(header(first.name, first.unit), values, "right", rank=1),
        TextColumn("formula", [p.formula for p in proposals], rank=2, least=MIN_FORMULA),
    ]


def _trained(history: History, task: str, trainings: Sequence[Training]) -> list[tuple[str, str]]:
    """Return pairs of name and text on the genome's trainings under one task.

    They show time, memory and learning curves of the first training, and failed trainings.

    Args:
        task: see ``History.by_task``.
    """
    objective, first = history.setup.objectives[0], trainings[0].evaluation
    times, core = plural(len(trainings), "time"), duration(first.core_seconds)
    gpu = f", {duration(first.wall_seconds)} on a GPU" if on_gpu(first) else ""
    rows = [
        (f"trained{task}", f"{times}, {first.budget}, {core} of core time{gpu}"),
        (f"memory{task}", f"{human(first.peak_memory_bytes)}B"),
    ]
    # Eager execution is the default.
    if first.execution not in ("", "cpu, eager"):
        rows.append((f"steps{task}", first.execution))
    if len(first.reports) > 1 and objective.is_metric:
        # The objective by epoch, and the first metric of each gate.
        curves: dict[str, list[float]] = {}
        for metrics in (report.metrics for report in first.reports):
            name = objective.name if objective.name in metrics else next(iter(metrics))
            curves.setdefault(name, []).append(metrics[name])
        for name, values in curves.items():
            unit = history.setup.unit(name)
            texts = ", ".join(amount(value, unit) for value in values)
            rows.append((f"{header(name, unit)} by epoch{task}", texts))
    for failed in (t.evaluation for t in trainings if not t.evaluation.is_ok):
        why = (failed.reason or "").replace("_", " ")
        rows.append((failed.status + task, ": ".join(filter(None, (why, last_line(failed.error))))))
    return rows


def _maker(proposal: Proposal) -> str:
    return f"{proposal.operator} {proposal.name}" if proposal.name else proposal.operator


def _value(candidate: Candidate, name: str, unit: str) -> str:
    return amount(candidate.objectives[name], unit, candidate.errors.get(name))
