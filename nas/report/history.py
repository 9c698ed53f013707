"""What a run knows of one of its genomes: results and lineage, as tables and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nas.report.facts import id_length
from nas.report.table import Column
from nas.report.units import HEADERS, duration, human, measured, percent, plural
from nas.store import find_candidate, lineage, open_run

if TYPE_CHECKING:
    from pathlib import Path

    from nas.evaluation.record import Evaluation
    from nas.store import Candidate, Proposal

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
    proposal: Proposal
    ancestors: tuple[Ancestor, ...]
    evaluations: tuple[Evaluation, ...]
    id_length: int

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
        measured_here = self.candidate
        return {
            "run": self.run,
            "generation": self.proposal.generation,
            "origin": self.proposal.origin,
            "objectives": dict(measured_here.objectives) if measured_here else None,
            "standard_errors": dict(measured_here.standard_errors) if measured_here else None,
            "evaluations": [evaluation.to_dict() for evaluation in self.evaluations],
            "lineage": [_ancestor(ancestor) for ancestor in self.ancestors],
        }


def history_of(folder: Path, digest: str) -> History:
    """Read what a run knows of a genome that it proposed."""
    with open_run(folder) as run, run.snapshot():
        found = lineage(run, digest)
        key = found[0].key
        evaluations = (
            []
            if key is None
            else [run.evaluation(key, repeat) for repeat in range(run.setup.repeats)]
        )
        return History(
            run=run.name,
            proposal=found[0],
            ancestors=tuple(Ancestor(p, find_candidate(run, p.digest)) for p in found),
            evaluations=tuple(e for e in evaluations if e is not None),
            id_length=id_length(run.digests()),
        )


def results(history: History) -> list[Column]:
    """How the genome came about and what its training gave, as names and values."""
    proposal = history.proposal
    rows = [
        ("proposed", f"generation {proposal.generation} by {_maker(proposal)}"),
        *_measured(history),
        *_trained(history.evaluations),
    ]
    if not history.evaluations:
        rows.append(("trained", proposal.note or "not yet"))
    words, values = zip(*rows, strict=True)
    return [Column("", words, style="dim"), Column("", values, least=20)]


def lineage_columns(history: History) -> list[Column]:
    """The lineage, one row an ancestor."""
    shown = history.ancestors[:MAX_ANCESTORS]
    proposals = [ancestor.proposal for ancestor in shown]
    short = history.id_length
    parents = tuple(" + ".join(digest[:short] for digest in p.parents) for p in proposals)
    return [
        Column("id", tuple(p.digest[:short] for p in proposals), style="cyan"),
        Column("gen", tuple(str(p.generation) for p in proposals), "right"),
        Column("made by", tuple(map(_maker, proposals))),
        Column("from", parents, rank=1),
        Column("accuracy %", tuple(map(_accuracy, shown)), "right", rank=1),
        Column("formula", tuple(p.formula for p in proposals), rank=2, least=MIN_FORMULA),
    ]


def _measured(history: History) -> list[tuple[str, str]]:
    found = history.candidate
    if found is None:
        return []
    errors = found.standard_errors
    return [
        (HEADERS.get(name, name), measured(name, value, errors.get(name)))
        for name, value in found.objectives.items()
    ]


def _trained(evaluations: tuple[Evaluation, ...]) -> list[tuple[str, str]]:
    """Budget, time and curve of the first training, and failures."""
    rows = []
    if evaluations:
        first = evaluations[0]
        rows.append(
            (
                "trained",
                f"{plural(len(evaluations), 'time')}, {first.budget}, "
                f"{duration(first.core_seconds)} of core time",
            )
        )
        rows.append(("memory", f"{human(first.peak_memory_bytes)}B"))
        # Eagerly on a processor is what everybody expects.
        if first.execution not in ("", "cpu, eager"):
            rows.append(("steps", first.execution))
        if len(first.curve) > 1:
            curve = ", ".join(percent(point.validation_accuracy) for point in first.curve)
            rows.append(("by epoch", f"{curve} %"))
    for failed in (e for e in evaluations if not e.is_ok):
        why = str(failed.reason).replace("_", " ")
        text = (failed.error or "").strip().splitlines()
        rows.append(("failed", f"{why}: {text[-1]}" if text else why))
    return rows


def _maker(proposal: Proposal) -> str:
    return proposal.origin.replace(":", " ")


def _accuracy(ancestor: Ancestor) -> str:
    found = ancestor.candidate
    if found is None or "accuracy" not in found.objectives:
        return ""
    return measured("accuracy", found.objectives["accuracy"], found.standard_errors.get("accuracy"))


def _ancestor(ancestor: Ancestor) -> dict[str, Any]:
    proposal, found = ancestor.proposal, ancestor.candidate
    return {
        "id": proposal.digest,
        "generation": proposal.generation,
        "origin": proposal.origin,
        "parents": list(proposal.parents),
        "formula": proposal.formula,
        "objectives": dict(found.objectives) if found else None,
    }
