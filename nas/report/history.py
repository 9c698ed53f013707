"""Training results and ancestors of a genome of a run, as tables and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import networkx as nx

from nas.common.text import last_line, plural
from nas.evaluation.trial import Incident, Training
from nas.report.run_view import RunView, on_gpu, outside_text, p_front
from nas.report.table import TextColumn, named_values
from nas.report.units import amount, duration, header, human
from nas.store import Candidate, Proposal, open_run

MAX_ANCESTORS: Final = 10
MIN_FORMULA: Final = 20


@dataclass(frozen=True)
class History:
    """Training results and ancestors of a genome of a run.

    ``proposals`` are those of the genome itself, its parents, their parents, and so on, each once.
    """

    view: RunView
    proposals: tuple[Proposal, ...]

    @property
    def more(self) -> list[str]:
        """A list of one line that counts the omitted ancestors; empty if none is omitted."""
        hidden = len(self.proposals) - MAX_ANCESTORS
        return [f"... and {plural(hidden, 'more ancestor')}."] if hidden > 0 else []

    @property
    def trainings(self) -> tuple[Training, ...]:
        """The genome's trainings in the search, those under its target task last."""
        trained = self.view.trained.get(self.proposals[0].key or "")
        return (*trained.trainings, *(trained.target or ())) if trained else ()

    @property
    def incidents(self) -> list[Incident]:
        """Worker failures during these trainings."""
        return [i for i in self.view.incidents if i.key and i.key == self.proposals[0].key]

    def result(self, proposal: Proposal) -> Candidate | None:
        """Return the results of a proposal's mechanism; None if its trainings did not succeed."""
        trained = self.view.trained.get(proposal.key or "")
        return trained if trained and trained.is_ok else None

    def generation(self, proposal: Proposal) -> int:
        """Return the index of the generation of a proposal, from 0 as in the record."""
        return proposal.number // self.view.setup.config.population

    def to_dict(self) -> dict[str, Any]:
        """Return the results and ancestors as entries of the JSON object of ``nas show``."""
        entries = [self._entry(proposal) for proposal in self.proposals]
        result = self.result(self.proposals[0])
        keys = ("generation", "operator", "name", "parents", "objectives")
        return {
            "run": self.view.name,
            **{name: entries[0][name] for name in keys},
            "standard_errors": dict(result.errors) if result else None,
            "scores": dict(result.scores) if result else None,
            "p_non_dominated": result.p if result else None,
            "incidents": [asdict(incident) for incident in self.incidents],
            "trainings": [training.to_dict() for training in self.trainings],
            "lineage": entries,
        }

    def _entry(self, proposal: Proposal) -> dict[str, Any]:
        result = self.result(proposal)
        return {
            "id": proposal.digest,
            "generation": self.generation(proposal),
            "operator": proposal.operator,
            "name": proposal.name,
            "parents": list(proposal.parents),
            "formula": proposal.formula,
            "objectives": dict(result.objectives) if result else None,
        }


def history_of(folder: Path, digest: str) -> History:
    """Return training results and ancestors of a genome, read from a run's folder."""
    with open_run(folder) as run:
        view = RunView.read(run)
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_node(digest)
    for mechanism in view.mechanisms:
        graph.add_edges_from((mechanism.digest, parent) for parent in mechanism.proposal.parents)
    ancestors = [parent for _, parent in nx.bfs_edges(graph, digest)]  # nearest first
    known = [each for each in (digest, *ancestors) if each in view.by_digest]
    return History(view, tuple(view.by_digest[each].proposal for each in known))


def results(history: History) -> list[TextColumn]:
    """Return origin and training results of the genome as a table of names and values."""
    proposal, setup = history.proposals[0], history.view.setup
    result = history.result(proposal)
    groups: dict[str, list[Training]] = {}  # by the end of titles: the task, if there are two
    for training in history.trainings:
        groups.setdefault(f", {training.task_name}" * bool(setup.target), []).append(training)
    # People count generations from 1, as the live display does.
    generation = history.generation(proposal) + 1
    rows = [("proposed", f"generation {generation} by {_maker(proposal)}")]
    if result is not None:
        for name in result.objectives:
            estimate = ", estimate" if result.is_estimated and name in result.errors else ""
            unit = setup.unit(name)
            rows.append((header(name, unit) + estimate, _value(result, name, unit)))
        if result.p is not None and result.errors:
            for metric in (o for o in setup.objectives if o.name in result.scores):
                for task, group in groups.items():
                    scores = [training.evaluation.metrics[metric.name] for training in group]
                    title = f"{header(metric.name, metric.unit)} by seed{task}"
                    rows.append((title, ", ".join(amount(score, metric.unit) for score in scores)))
            rows.append(("p(front)", f"{result.p:.2f}: {p_front(setup.objectives)}"))
        if outside := outside_text(setup.objectives, result.objectives):
            rows.append(("limits", outside))
    for task, group in groups.items():
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
    proposals, short = history.proposals[:MAX_ANCESTORS], history.view.id_length
    first = history.view.setup.objectives[0]
    found = [history.result(proposal) for proposal in proposals]
    parents = [" + ".join(digest[:short] for digest in p.parents) for p in proposals]
    values = [_value(result, first.name, first.unit) if result else "" for result in found]
    return [
        TextColumn("id", [p.digest[:short] for p in proposals], style="cyan"),
        TextColumn("gen", [str(history.generation(p) + 1) for p in proposals], "right"),
        TextColumn("made by", [_maker(p) for p in proposals]),
        TextColumn("from", parents, rank=1),
        TextColumn(header(first.name, first.unit), values, "right", rank=1),
        TextColumn("formula", [p.formula for p in proposals], rank=2, least=MIN_FORMULA),
    ]


def _trained(
    history: History, task: str, trainings: Sequence[Training]
) -> Iterator[tuple[str, str]]:
    """Yield names and texts on the trainings under a task; curves are of the first training."""
    setup, first = history.view.setup, trainings[0].evaluation
    times, core = plural(len(trainings), "time"), duration(first.core_seconds)
    gpu = f", {duration(first.wall_seconds)} on a GPU" if on_gpu(first) else ""
    yield f"trained{task}", f"{times}, {first.budget}, {core} of core time{gpu}"
    yield f"memory{task}", f"{human(first.peak_memory_bytes)}B"
    if first.execution not in ("", "cpu, eager"):  # the default
        yield f"steps{task}", first.execution
    if len(first.reports) > 1 and (objective := setup.objectives[0]).is_metric:
        # The objective by epoch, and the first metric of each gate.
        curves: dict[str, list[float]] = {}
        for metrics in (report.metrics for report in first.reports):
            name = objective.name if objective.name in metrics else next(iter(metrics))
            curves.setdefault(name, []).append(metrics[name])
        for name, values in curves.items():
            unit = setup.unit(name)
            texts = ", ".join(amount(value, unit) for value in values)
            yield f"{header(name, unit)} by epoch{task}", texts
    for failed in (t.evaluation for t in trainings if not t.evaluation.is_ok):
        why = (failed.reason or "").replace("_", " ")
        yield failed.status + task, ": ".join(filter(None, (why, last_line(failed.error))))


def _maker(proposal: Proposal) -> str:
    return f"{proposal.operator} {proposal.name}" if proposal.name else proposal.operator


def _value(candidate: Candidate, name: str, unit: str) -> str:
    return amount(candidate.objectives[name], unit, candidate.errors.get(name))
