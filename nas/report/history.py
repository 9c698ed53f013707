"""What a run records about one mechanism: results, trainings and ancestors, as tables and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import networkx as nx

from nas.common.text import last_line, plural
from nas.evaluation.trial import Training
from nas.report.run_view import RunView, outside_text
from nas.report.table import Column, Table, words
from nas.report.units import amount, duration, header, human, minus, points
from nas.store import Candidate, open_run

PartTraining: TypeAlias = tuple[str, Training]


def facts(view: RunView, mechanism: Candidate) -> Iterator[tuple[str, str, str]]:
    """Yield name, text and kind of each result of a mechanism, without its costs.

    The kind is the shape of the result's mark on the page, or "more" for what its tooltip omits.
    """
    seeds = plural(len(mechanism.scored), "seed")
    for metric in (o for o in view.setup.objectives if o.is_metric):
        title, name = header(metric.name, metric.unit), metric.name
        if mechanism.is_estimated and name in mechanism.objectives:
            value, error = mechanism.objectives[name], mechanism.errors.get(name)
            yield f"{title}, estimate", amount(value, metric.unit, error), "disc"
        if name in mechanism.scores:
            score = amount(mechanism.scores[name], metric.unit)
            yield f"{title}, score of {seeds}", score, "ring"
        for (part, key), cell in view.confirmation(metric).cells.items():
            if key != mechanism.key or cell.mean is None:
                continue
            mean = amount(cell.mean, metric.unit, cell.error)
            yield f"{title}, {part} ({plural(cell.seeds, 'seed')})", mean, "square"
            if lead := cell.difference:
                gain = minus(points(lead.mean, lead.error, metric.unit))
                yield f"over mha, {part}: {lead.verdict}", gain, f"square {lead.verdict}"
    if mechanism.is_estimated and mechanism.p is not None:
        yield "p(front)", f"{mechanism.p:.2f}", ""
    if not mechanism.is_ok:
        yield "training", mechanism.status, ""
    elif outside := outside_text(view.setup.objectives, mechanism.objectives):
        yield "limits", outside, ""
    operator = mechanism.proposal.operator.replace("_", " ")
    yield "proposed", f"generation {view.generation(mechanism)} by {operator}", "more"
    yield "digest", mechanism.digest, "more"


def costs(view: RunView, mechanism: Candidate) -> Iterator[tuple[str, str, float | None]]:
    """Yield title, text and multiple of standard attention's cost for each cost."""
    shares = view.shares(mechanism)
    for name in dict.fromkeys([*(o.name for o in view.setup.objectives), *mechanism.costs]):
        if name in mechanism.costs:
            yield header(name), amount(mechanism.costs[name]), shares.get(name)


def trainings_table(view: RunView, trainings: Sequence[PartTraining]) -> Table[PartTraining]:
    """Return a table of trainings of a mechanism, each with the part that it belongs to."""
    metric = view.metric

    def score(training: Training) -> str:
        value = training.evaluation.metrics.get(metric.name) if metric else None
        return "" if metric is None or value is None else amount(value, metric.unit)

    def error(training: Training) -> str:
        reason = (training.evaluation.reason or "").replace("_", " ")
        return ": ".join(filter(None, (reason, last_line(training.evaluation.error))))

    def of(title: str, value: Any, rank: int = 0, least: int = 0) -> Column[PartTraining]:
        text = lambda row: value(row[1])  # noqa: E731
        return Column(title, title, text, is_number=False, rank=rank, least=least)

    columns = [
        of("task", lambda t: t.task_name),
        words(0, "part"),
        of(header(metric.name, metric.unit) if metric else "", score),
        of("seed", lambda t: str(t.evaluation.seed)),
        of("status", lambda t: t.evaluation.status),
        of("core time", lambda t: duration(t.evaluation.core_seconds)),
        of("memory", lambda t: f"{human(t.evaluation.peak_memory_bytes)}B", rank=1),
        of("hardware", lambda t: t.evaluation.hardware, rank=2),
        of("error", error, least=16),
    ]
    return Table(columns, trainings)


@dataclass(frozen=True)
class History:
    """A mechanism of a run, its parents, their parents, and so on, each once, nearest first."""

    view: RunView
    mechanisms: tuple[Candidate, ...]

    def result(self, mechanism: Candidate) -> Candidate:
        """Return the mechanism that the search trained in place of one of equal function."""
        return self.view.trained.get(mechanism.key, mechanism)

    @property
    def trainings(self) -> list[PartTraining]:
        """All trainings of the mechanism with their parts, those of the search first."""
        subject, view = self.result(self.mechanisms[0]), self.view
        fresh = [(part, t) for part, t in view.confirmations_by_part if t.key == subject.key]
        return [*(("search", training) for training in subject.searched), *fresh]

    def _called(self, digest: str) -> str:
        found = self.view.by_digest.get(digest)
        return self.view.short(found) if found else digest[: self.view.id_length]

    @property
    def lineage(self) -> Table[Candidate]:
        """A table of the mechanism and its ancestors."""
        first = self.view.setup.objectives[0]
        columns: list[Column[Candidate]] = [
            Column(
                "id", "id", lambda m: m.digest, text=self.view.short, is_number=False, style="cyan"
            ),
            Column(
                "generation",
                "gen",
                lambda m: self.view.generation(m) - 1,
                text=lambda m: str(self.view.generation(m)),
            ),
            Column("operator", "made by", _maker, is_number=False),
            Column(
                "parents",
                "from",
                lambda m: " + ".join(map(self._called, m.proposal.parents)),
                is_number=False,
                rank=1,
            ),
            Column(
                first.name,
                header(first.name, first.unit),
                lambda m: self.result(m).objectives.get(first.name),
                unit=first.unit,
                error=lambda m: self.result(m).errors.get(first.name),
                rank=1,
            ),
            Column(
                "formula",
                "formula",
                lambda m: m.proposal.formula,
                is_number=False,
                rank=2,
                least=20,
            ),
        ]
        return Table(columns, self.mechanisms)

    def to_dict(self) -> dict[str, Any]:
        """Return the results and ancestors as entries of the JSON object of ``nas show``."""
        proposal, subject = self.mechanisms[0].proposal, self.result(self.mechanisms[0])
        is_ok = subject.is_ok
        return {
            "run": self.view.name,
            "generation": self.view.generation(self.mechanisms[0]) - 1,  # from 0, as in the record
            "operator": proposal.operator,
            "name": proposal.name,
            "parents": list(proposal.parents),
            "objectives": dict(subject.objectives) or None,
            "standard_errors": dict(subject.errors) if is_ok else None,
            "scores": dict(subject.scores) if is_ok else None,
            "p_non_dominated": subject.p if is_ok else None,
            "incidents": [asdict(i) for i in self.view.incidents if i.key == subject.key],
            "trainings": [training.to_dict() for training in subject.searched],
            "lineage": self.lineage.records(),
        }


def history_of(folder: Path, digest: str) -> History:
    """Return a mechanism and its ancestors, read from a run's folder."""
    with open_run(folder) as run:
        view = RunView.read(run)
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_node(digest)
    for mechanism in view.mechanisms:
        graph.add_edges_from((mechanism.digest, parent) for parent in mechanism.proposal.parents)
    ancestors = [parent for _, parent in nx.bfs_edges(graph, digest)]  # nearest first
    known = [each for each in (digest, *ancestors) if each in view.by_digest]
    return History(view, tuple(view.by_digest[each] for each in known))


def _maker(mechanism: Candidate) -> str:
    proposal = mechanism.proposal
    return f"{proposal.operator} {proposal.name}" if proposal.name else proposal.operator
