"""What a run knows of one of its genomes: results and lineage, as tables and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nas.report.facts import id_length
from nas.report.table import Column, named_values
from nas.report.text import last_line, plural
from nas.report.units import amount, duration, header, human
from nas.store import find_candidate, lineage, open_run

if TYPE_CHECKING:
    from pathlib import Path

    from nas.evaluation.trial import Evaluation
    from nas.objectives import Objective
    from nas.store import Candidate, Proposal, RunSetup

MAX_ANCESTORS: Final = 10
MIN_FORMULA: Final = 20


@dataclass(frozen=True)
class Ancestor:
    """A genome of the lineage, and what was measured of it, if its training ended well."""

    proposal: Proposal
    candidate: Candidate | None


@dataclass(frozen=True)
class History:
    """Results and lineage of a genome of a run.

    Attributes:
        ancestors: the genome itself, then its parents, theirs, and so on; each once.
        evaluations: of its repeats, as far as they are done.
        id_length: characters that tell the run's digests apart.
    """

    run: str
    setup: RunSetup
    ancestors: tuple[Ancestor, ...]
    evaluations: tuple[Evaluation, ...]
    id_length: int

    @property
    def proposal(self) -> Proposal:
        """The genome itself, as it was proposed."""
        return self.ancestors[0].proposal

    @property
    def candidate(self) -> Candidate | None:
        """What was measured, over all repeats."""
        return self.ancestors[0].candidate

    @property
    def more(self) -> list[str]:
        """What the table of the lineage leaves out."""
        hidden = len(self.ancestors) - MAX_ANCESTORS
        return [f"... and {plural(hidden, 'more ancestor')}."] if hidden > 0 else []

    def to_dict(self) -> dict[str, Any]:
        """The part of ``nas show --json`` that comes from a run."""
        entries = [self._entry(ancestor) for ancestor in self.ancestors]
        found = self.candidate
        return {
            "run": self.run,
            **{name: entries[0][name] for name in ("generation", "operator", "name", "objectives")},
            "standard_errors": dict(found.standard_errors) if found else None,
            "evaluations": [evaluation.to_dict() for evaluation in self.evaluations],
            "lineage": entries,
        }

    def generation(self, proposal: Proposal) -> int:
        """The generation that a proposal was made for."""
        return proposal.number // self.setup.population

    def _entry(self, ancestor: Ancestor) -> dict[str, Any]:
        proposal, found = ancestor.proposal, ancestor.candidate
        return {
            "id": proposal.digest,
            "generation": self.generation(proposal),
            "operator": proposal.operator,
            "name": proposal.name,
            "parents": list(proposal.parents),
            "formula": proposal.formula,
            "objectives": dict(found.objectives) if found else None,
        }


def history_of(folder: Path, digest: str) -> History:
    """Read what a run knows of a genome that it proposed."""
    with open_run(folder) as run, run.snapshot():
        setup, found = run.setup, lineage(run, digest)
        key = found[0].key or ""
        evaluations = [run.evaluation(key, repeat) for repeat in range(setup.repeats)]
        return History(
            run=run.name,
            setup=setup,
            ancestors=tuple(Ancestor(p, find_candidate(run, p.digest)) for p in found),
            evaluations=tuple(e for e in evaluations if e is not None),
            id_length=id_length(run.digests()),
        )


def results(history: History) -> list[Column]:
    """How the genome came about and what its training gave, as names and values."""
    proposal = history.proposal
    rows = [
        ("proposed", f"generation {history.generation(proposal)} by {_maker(proposal)}"),
        *_measured(history),
        *_trained(history),
    ]
    if not history.evaluations:
        rows.append(("trained", proposal.note or "not yet"))
    return named_values(rows)


def lineage_columns(history: History) -> list[Column]:
    """The lineage, one row an ancestor."""
    shown = history.ancestors[:MAX_ANCESTORS]
    proposals = [ancestor.proposal for ancestor in shown]
    short, first = history.id_length, history.setup.objectives[0]
    parents = tuple(" + ".join(digest[:short] for digest in p.parents) for p in proposals)
    values = tuple(_value(ancestor.candidate, first) for ancestor in shown)
    return [
        Column("id", tuple(p.digest[:short] for p in proposals), style="cyan"),
        Column("gen", tuple(str(history.generation(p)) for p in proposals), "right"),
        Column("made by", tuple(map(_maker, proposals))),
        Column("from", parents, rank=1),
        Column(header(first.name, first.unit), values, "right", rank=1),
        Column("formula", tuple(p.formula for p in proposals), rank=2, least=MIN_FORMULA),
    ]


def _measured(history: History) -> list[tuple[str, str]]:
    found = history.candidate
    if found is None:
        return []
    units = {o.name: o.unit for o in history.setup.objectives}
    return [
        (
            header(name, units.get(name, "")),
            amount(value, units.get(name, ""), found.standard_errors.get(name)),
        )
        for name, value in found.objectives.items()
    ]


def _trained(history: History) -> list[tuple[str, str]]:
    """Budget, time and reports of the first training, and failures."""
    evaluations, objective = history.evaluations, history.setup.objectives[0]
    rows = []
    for first in evaluations[:1]:
        times, core = plural(len(evaluations), "time"), duration(first.core_seconds)
        rows.append(("trained", f"{times}, {first.budget}, {core} of core time"))
        rows.append(("memory", f"{human(first.peak_memory_bytes)}B"))
        # Eagerly is what everybody expects.
        if first.execution not in ("", "eager", "cpu, eager"):
            rows.append(("steps", first.execution))
        if len(first.reports) > 1 and objective.is_metric:
            values = [amount(r.metrics[objective.name], objective.unit) for r in first.reports]
            title = f"{header(objective.name, objective.unit)} by epoch"
            rows.append((title, ", ".join(values)))
    for failed in (e for e in evaluations if not e.is_ok):
        why = (failed.reason or failed.status).replace("_", " ")
        rows.append(("failed", ": ".join(filter(None, (why, last_line(failed.error))))))
    return rows


def _maker(proposal: Proposal) -> str:
    return f"{proposal.operator} {proposal.name}" if proposal.name else proposal.operator


def _value(found: Candidate | None, objective: Objective) -> str:
    if found is None:
        return ""
    error = found.standard_errors.get(objective.name)
    return amount(found.objectives[objective.name], objective.unit, error)
