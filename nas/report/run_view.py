"""The data of all displays of a run, read from its record in one snapshot.

Tables, figures, the report page and notebooks render a ``RunView`` and do not read the record.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePath
from typing import Any, Final

from nas.common.config import parse_yaml
from nas.common.objectives import COST_REFERENCE, Metric, Objective, beyond_limits
from nas.common.pareto import scaled_hypervolume
from nas.evaluation.trial import Incident, Training
from nas.genome import STANDARD
from nas.genome.naming import digits_needed, find_name
from nas.report.comparison import Cell, Comparison, TrainingRow, compare
from nas.report.units import duration, limit_text
from nas.store.records import Candidate, Counts, Generation, RunSetup, Session
from nas.store.run import Run, named_members

UNIFORM: Final = "uniform"
# The title of each part of a confirmation, in JSON and above columns.
FRESH: Final = {"search": "fresh", "long": "long", "test": "test"}


@dataclass(frozen=True)
class RunView:
    """The recorded data of a run at one moment: a table of mechanisms, and one of trainings.

    Attributes:
        label: name of the run as typed; ``name`` is unique among the runs shown together.
        mechanisms: all proposed mechanisms, one for each digest, in order of proposal.
        members: the mechanisms of the Pareto front, sorted by the first objective, best first.
        names: names of the published mechanisms, by ``Proposal.key``; equal ones share a key.
        trainings: those of the search, sorted by key, purpose and index of the seed.
        confirmations: all trainings with seeds that the search never used. Their learning rates are
            None unless rates were tried under their task.
    """

    name: str
    label: str
    status: str
    setup: RunSetup
    mechanisms: tuple[Candidate, ...]
    members: tuple[Candidate, ...]
    names: Mapping[str, tuple[str, ...]]
    trainings: tuple[Training, ...]
    confirmations: tuple[Training, ...]
    incidents: tuple[Incident, ...]
    explained: tuple[dict[str, Any], ...]
    generations: tuple[Generation, ...]
    sessions: tuple[Session, ...]
    counts: Counts

    @classmethod
    def read(cls, run: Run, label: str | None = None, name: str | None = None) -> RunView:
        """Return a view of an open run; ``label`` and ``name`` are the run's name by default."""
        with run.snapshot():
            proposals = run.proposals()
            candidates = run.candidates(proposals=proposals)
            # For each digest the trained candidate, else the first proposal.
            by_digest = {proposal.digest: Candidate(proposal) for proposal in reversed(proposals)}
            by_digest |= {candidate.digest: candidate for candidate in candidates}
            mechanisms = [by_digest[d] for d in dict.fromkeys(p.digest for p in proposals)]
            names: dict[str, tuple[str, ...]] = {}
            for proposal in (mechanism.proposal for mechanism in mechanisms):
                if proposal.key and proposal.name:
                    names[proposal.key] = (*names.get(proposal.key, ()), proposal.name)
            trainings = [training for c in candidates for training in c.searched]
            return cls(
                name=name or run.name,
                label=label or run.name,
                status=run.status,
                setup=run.setup,
                mechanisms=tuple(mechanisms),
                members=run.front(candidates),
                names=names,
                trainings=tuple(sorted(trainings, key=lambda t: (t.key, t.purpose, t.repeat))),
                confirmations=tuple(_confirmations(run)),
                incidents=run.incidents(),
                explained=run.answers(),
                generations=run.generations(),
                sessions=run.sessions(),
                counts=run.counts(),
            )

    @cached_property
    def metric(self) -> Objective | None:
        """The first objective that is a metric; None if all objectives are costs."""
        return next((o for o in self.setup.objectives if o.is_metric), None)

    @cached_property
    def trained(self) -> dict[str, Candidate]:
        """Mechanisms submitted for training, by ``Proposal.key``, in order of proposal."""
        return {c.key: c for c in self.mechanisms if c.proposal.is_new}

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """Mechanisms whose trainings in the search all succeeded, in order of proposal."""
        return tuple(candidate for candidate in self.trained.values() if candidate.objectives)

    @cached_property
    def by_digest(self) -> dict[str, Candidate]:
        """All proposed mechanisms by digest."""
        return {candidate.digest: candidate for candidate in self.mechanisms}

    @cached_property
    def id_length(self) -> int:
        """The number of initial characters that distinguish all digests of the run."""
        return digits_needed(candidate.digest for candidate in self.mechanisms)

    @cached_property
    def titles(self) -> dict[str, tuple[str, ...]]:
        """The titles "best", "knee" (best trade-off) and "cheapest" of mechanisms, by digest."""
        titles: dict[str, tuple[str, ...]] = {}
        for title, member in named_members(self.setup.objectives, self.members).items():
            titles[member.digest] = (*titles.get(member.digest, ()), title)
        return titles

    @cached_property
    def hypervolume(self) -> float:
        """The hypervolume of the Pareto front, as a fraction of the largest possible one."""
        if self.generations:
            return self.generations[-1].hypervolume
        return scaled_hypervolume(self.setup.objectives, [m.objectives for m in self.members])

    @cached_property
    def named(self) -> tuple[tuple[str, Candidate], ...]:
        """The published mechanisms that the search trained successfully, each with its names."""
        pairs = ((self.name_of(candidate), candidate) for candidate in self.candidates)
        return tuple((name, candidate) for name, candidate in pairs if name)

    @cached_property
    def reference(self) -> str:
        """The name of the mechanism with which others are compared, the reference of the task."""
        return str(_task_fields(self.setup).get("reference", STANDARD))

    @cached_property
    def reference_key(self) -> str | None:
        """The ``Proposal.key`` of the reference; None if the run never trained it."""
        return next(iter(self._keys_of(self.reference)), None)

    @cached_property
    def controls(self) -> set[str]:
        """The ``Proposal.key`` of each control, the reference and ``uniform``."""
        return {*self._keys_of(self.reference), *self._keys_of(UNIFORM)}

    def _keys_of(self, name: str) -> list[str]:
        keys = [key for key, names in self.names.items() if name in names]
        return keys + [training.key for training in self.confirmations if training.name == name]

    @property
    def reference_candidate(self) -> Candidate | None:
        """The reference and its results in the search; None if it was not trained there."""
        return self.trained.get(self.reference_key or "")

    def confirmation(self, metric: Metric | Objective, *, is_tested: bool = True) -> Comparison:
        """Return the comparison of the confirmed mechanisms with the reference by a metric.

        The names of mechanisms are values of ``Proposal.key``. The parts are those of ``FRESH``,
        with the name of the task if a part has several tasks. Differences need ``is_tested``.
        """
        key, against = (metric.name, is_tested), self.reference_key if is_tested else None
        if key not in self._confirmed:
            costs = {key: candidate.costs for key, candidate in self.trained.items()}
            rows = [
                TrainingRow(
                    *(t.key, t.key, title, t.repeat, t.evaluation, costs.get(t.key, {}), metric),
                    learning_rate=t.learning_rate,
                )
                for title, t in self.confirmations_by_part
                if not t.evaluation.is_ok or metric.name in t.evaluation.metrics
            ]
            tasks = {title: t.task_name for title, t in self.confirmations_by_part}
            found = {key: found_in_search(each, metric) for key, each in self.trained.items()}
            self._confirmed[key] = compare(rows, tasks, against, 0, found=found, run=self.name)
        return self._confirmed[key]

    @cached_property
    def confirmations_by_part(self) -> tuple[tuple[str, Training], ...]:
        """Each training of ``confirmations`` with the title of its part (see ``confirmation``)."""
        ordered = sorted(self.confirmations, key=lambda t: [*FRESH].index(t.stage))
        tasks = {part: {t.task_name for t in ordered if t.part == part} for part in FRESH.values()}
        return tuple(
            (t.part if len(tasks[t.part]) == 1 else f"{t.part} {t.task_name}", t) for t in ordered
        )

    @cached_property
    def _confirmed(self) -> dict[tuple[str, bool], Comparison]:
        return {}

    @cached_property
    def fresh(self) -> dict[str, dict[str, Cell]]:
        """Results with fresh seeds, by part and ``Proposal.key``, if a training succeeded."""
        return self._by_part(is_tested=True)

    @cached_property
    def means(self) -> dict[str, dict[str, Cell]]:
        """``fresh`` without differences, which need SciPy, an import of half a second."""
        return self._by_part(is_tested=False)

    def _by_part(self, *, is_tested: bool) -> dict[str, dict[str, Cell]]:
        parts: dict[str, dict[str, Cell]] = {}
        if self.metric is not None:
            result = self.confirmation(self.metric, is_tested=is_tested)
            for (title, key), cell in result.cells.items():
                if cell.mean is not None:
                    parts.setdefault(title, {})[key] = cell
        return parts

    @property
    def failures(self) -> dict[str, int]:
        """The number of mechanisms with a failed training, by reason of the failure."""
        reasons = {t.key: t.evaluation.reason for t in self.trainings if t.evaluation.reason}
        return dict(Counter(reasons.values()))

    @property
    def wall_seconds(self) -> float:
        """The total duration of all sessions, from a start or resume until a stop, in seconds.

        A session without a recorded end counts until the last generation that was completed in it.
        """
        finished = [generation.finished for generation in self.generations]
        wall, limit = 0.0, None
        for past in reversed(self.sessions):
            before = (f for f in finished if f > past.started and (limit is None or f <= limit))
            end = past.ended or max(before, default=past.started)
            wall += max(0.0, (end - past.started).total_seconds())
            limit = past.started
        return wall

    @property
    def core_seconds(self) -> float:
        """The processor time of all trainings of the search, in seconds."""
        return math.fsum(training.evaluation.core_seconds for training in self.trainings)

    @property
    def core_time(self) -> str:
        """The processor time of all trainings, and the duration of those on GPUs, as a text."""
        evaluations = (training.evaluation for training in self.trainings)
        on_gpus = [e.wall_seconds for e in evaluations if e.execution.startswith("cuda")]
        text = f"{duration(self.core_seconds)} of core time"
        if not on_gpus:
            return text
        return f"{text}, in trainings that lasted {duration(math.fsum(on_gpus))} on shares of GPUs"

    @property
    def hardware(self) -> tuple[str, ...]:
        """The processors and GPUs of the trainings, without duplicates."""
        return tuple(dict.fromkeys(filter(None, (t.evaluation.hardware for t in self.trainings))))

    def trained_as(self, candidate: Candidate) -> Candidate:
        """Return the mechanism of equal function that the search trained, else the same one."""
        return self.trained.get(candidate.key, candidate)

    def name_of(self, candidate: Candidate) -> str:
        """Return the names of the published mechanisms equal to a mechanism, joined by " = "."""
        return " = ".join(self.names.get(candidate.key, ()))

    def short(self, candidate: Candidate) -> str:
        """Return the name of a find (``find_name``), which is unique in the run."""
        return find_name(candidate.proposal.genome, candidate.digest, self.id_length)

    def called(self, candidate: Candidate) -> str:
        """Return the published names of a mechanism, or that of a find."""
        return self.name_of(candidate) or self.short(candidate)

    def generation(self, candidate: Candidate) -> int:
        """Return the number of the generation that proposed a mechanism, from 1."""
        return 1 + candidate.proposal.number // self.setup.config.population

    def shares(self, candidate: Candidate) -> dict[str, float]:
        """Return a mechanism's costs relative to the reference, by name of the cost."""
        costs = (o for o in self.setup.objectives if not o.is_metric)
        base = {cost.name: cost.reference / COST_REFERENCE for cost in costs}
        # A training of the reference adds costs that are no objectives.
        base |= self.reference_candidate.costs if self.reference_candidate else {}
        return {name: cost / base[name] for name, cost in candidate.costs.items() if base.get(name)}


def found_in_search(
    candidate: Candidate | None, metric: Metric | Objective
) -> dict[str, float | None]:
    """Return what a search found of a mechanism, as ``found`` of a row of a comparison."""
    if candidate is None:
        return dict.fromkeys(("score", "estimate", "error", "p"))
    return {
        "score": candidate.scores.get(metric.name),
        "estimate": candidate.objectives.get(metric.name),
        "error": candidate.errors.get(metric.name),
        "p": candidate.p,
    }


def outside_text(objectives: Sequence[Objective], values: Mapping[str, float]) -> str:
    """Return which limits values exceed, such as "outside: MACs at most 1.20 M"; else ""."""
    limits = ", ".join(map(limit_text, beyond_limits(objectives, values)))
    return f"outside: {limits}" if limits else ""


def task_and_data(setup: RunSetup) -> str:
    """Return the names of a run's task and data, from the task's copy saved with the run."""
    data = _task_fields(setup).get("data")
    if not data:
        return setup.front_task.name
    # Only the last part of a path is shown: the whole path may be private.
    _, _, path = str(data).partition(":")
    is_path = path.startswith(("/", "~"))
    return f"{setup.front_task.name} on {f'folder {PurePath(path).name}' if is_path else data}"


def _confirmations(run: Run) -> Iterator[Training]:
    own, recorded = run.setup.front_task, run.trainings("confirm")
    rates = {t.task: t.learning_rate for t in recorded if t.learning_rate is not None}
    if any(t.task in rates for t in recorded if t.stage == "search"):
        rates[own.fingerprint] = _task_fields(run.setup)["learning_rate"]
    for t in recorded:
        if t.stage != "search" or t.task == own.fingerprint or t.task in rates:
            yield replace(t, learning_rate=rates.get(t.task))


def _task_fields(setup: RunSetup) -> dict[str, Any]:
    """Return the fields of a task, of a gated task those of the scored one in place of its own."""
    fields = parse_yaml(setup.front_task.text, setup.front_task.name)
    return {**fields, **fields.get("task", {})} if isinstance(fields, dict) else {}
