"""What a page shows of one run, read from its record at one moment.

Genomes stay the text that the record holds: a page has ten thousand of them, and reads the one that
somebody looks at.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from nas.common.differences import mean_and_error, paired
from nas.report.facts import FRESH, STANDARD, id_length, session_seconds
from nas.store import candidates_of, named_members
from nas.store.answers import read_answers
from nas.store.results import front_of, scaled_hypervolume
from nas.store.rows import parse, to_datetime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from nas.common.objectives import Objective
    from nas.evaluation.trial import Incident
    from nas.store import Candidate, Confirmation, Counts, Generation, Run, RunSetup
    from nas.store.records import PastSession
    from nas.store.results import Result
    from nas.store.rows import Row

    Answer: TypeAlias = tuple[Path, dict[str, Any]]


@dataclass(frozen=True)
class Mechanism:
    """A genome that was proposed, and what became of it.

    Attributes:
        genome: as JSON text.
        state: "ok", "failed", "stopped" or "waiting" if it was to be trained; "known" if another
            spelling of it was; "rejected" if it is not legal.
        result: of its trainings, if it was to be trained.
    """

    digest: str
    key: str | None
    genome: str
    formula: str
    operator: str
    name: str | None
    number: int
    parents: tuple[str, ...]
    note: str
    costs: Mapping[str, float]
    state: str
    result: Result | None


@dataclass(frozen=True)
class Content:
    """A run as a page shows it.

    Attributes:
        name: of the run, told apart from others on the page.
        label: how a person names it on the command line.
        mechanisms: all that were proposed, each digest once, in order.
        members: the front, best first objective first.
        titles: best, knee and cheapest, by digest.
        names: names of mechanisms by resolved digest.
        trials: rows of the table of that name; metrics, reports and the moment are read.
        fresh: by title ("fresh", "long", ...) and resolved digest, confirmations that ended well.
        incidents: what befell machines, in order.
        explained, benchmarked: answers of these commands on its mechanisms, with their files.
    """

    name: str
    label: str
    status: str
    note: str
    started: datetime
    setup: RunSetup
    mechanisms: tuple[Mechanism, ...]
    members: tuple[Candidate, ...]
    titles: Mapping[str, tuple[str, ...]]
    names: Mapping[str, tuple[str, ...]]
    trials: tuple[Row, ...]
    confirmations: tuple[Confirmation, ...]
    fresh: Mapping[str, Mapping[str, tuple[Confirmation, ...]]]
    incidents: tuple[Incident, ...]
    explained: tuple[Answer, ...]
    benchmarked: tuple[Answer, ...]
    generations: tuple[Generation, ...]
    sessions: tuple[PastSession, ...]
    counts: Counts
    hypervolume: float
    wall_seconds: float
    busy: float | None

    @cached_property
    def metric(self) -> Objective | None:
        """The first objective that a training measures."""
        return next((o for o in self.setup.objectives if o.is_metric), None)

    @cached_property
    def trained(self) -> dict[str, Mechanism]:
        """Mechanisms that were to be trained, by resolved digest."""
        return {m.key: m for m in self.mechanisms if m.result is not None and m.key is not None}

    @cached_property
    def by_digest(self) -> dict[str, Mechanism]:
        """All that were proposed."""
        return {m.digest: m for m in self.mechanisms}

    @cached_property
    def id_length(self) -> int:
        """Characters of a digest that tell all apart."""
        return id_length([m.digest for m in self.mechanisms])

    @cached_property
    def standard(self) -> str | None:
        """The resolved digest of standard attention, if it was trained here or to confirm."""
        found = [key for key, names in self.names.items() if STANDARD in names]
        found += [one.key for one in self.confirmations if one.name == STANDARD]
        return found[0] if found else None

    @property
    def core_seconds(self) -> float:
        """Over all trainings of the search."""
        return math.fsum(row["core_seconds"] for row in self.trials)

    def called(self, key: str) -> str:
        """A mechanism's name, else the beginning of its digest."""
        names = self.names.get(key)
        return " = ".join(names) if names else self.trained[key].digest[: self.id_length]

    def values(self, title: str, key: str) -> dict[int, float]:
        """The metric in trainings with fresh seeds, by repeat."""
        assert self.metric is not None
        found = self.fresh.get(title, {}).get(key, ())
        return {one.repeat: one.evaluation.metrics[self.metric.name] for one in found}

    def gains(self, title: str, key: str) -> list[float]:
        """The metric's differences to standard attention's, between equal seeds."""
        base = self.values(title, self.standard) if self.standard else {}
        return paired(self.values(title, key), base)


def read_content(run: Run, label: str, name: str) -> Content:
    """Read what a page shows.

    Raises:
        RunError: the record is damaged.
    """
    with run.snapshot():
        setup, results = run.setup, run.results()
        by_key = {result.key: result for result in results}
        trials = run.read_rows("trials", lambda found: _trials(found, by_key))
        ended = _endings(trials)
        rows = run.read_rows("proposals", lambda found: _mechanisms(found, by_key, ended))
        members = tuple(candidates_of(run, front_of(setup.objectives, results)))
        confirmations = run.confirmations()
        wall, there = session_seconds(run)
        titles: dict[str, tuple[str, ...]] = {}
        for title, member in named_members(setup.objectives, members).items():
            titles[member.digest] = (*titles.get(member.digest, ()), title)
        return Content(
            name=name,
            label=label,
            status=run.status,
            note=run.note,
            started=run.started,
            setup=setup,
            mechanisms=rows,
            members=members,
            titles=titles,
            names=_names(rows),
            trials=trials,
            confirmations=confirmations,
            fresh=_fresh(confirmations),
            incidents=run.incidents(),
            explained=read_answers(run.folder, "explain"),
            benchmarked=read_answers(run.folder, "benchmark"),
            generations=run.generations(),
            sessions=run.sessions(),
            counts=run.counts(),
            hypervolume=scaled_hypervolume(setup.objectives, [m.objectives for m in members]),
            wall_seconds=wall,
            busy=min(1.0, sum(row["wall_seconds"] for row in trials) / there) if there else None,
        )


def _trials(found: list[Row], results: Mapping[str, Result]) -> tuple[Row, ...]:
    """Trainings as rows with numbers read, of mechanisms that were to be trained."""
    parse(found, "metrics", "reports")
    for row in found:
        row["moment"] = to_datetime(row["recorded"])
        if row["key"] not in results:
            raise ValueError(f"a training of {row['key']}, which was never proposed")
        row["metrics"] = {name: float(value) for name, value in row["metrics"].items()}
        for report in row["reports"]:
            if not isinstance(report["metrics"], dict) or "train_loss" not in report:
                raise ValueError(f"a report of {row['key']} without metrics or loss")
    return tuple(found)


def _endings(trials: Sequence[Row]) -> dict[str, str]:
    """How the trainings of each mechanism ended: failed if one did, else stopped if one was."""
    order = ("ok", "stopped", "failed")
    found: dict[str, str] = {}
    for row in trials:
        found[row["key"]] = max(found.get(row["key"], "ok"), row["status"], key=order.index)
    return found


def _mechanisms(
    found: list[Row], results: Mapping[str, Result], ended: Mapping[str, str]
) -> tuple[Mechanism, ...]:
    """Each digest once: the proposal that was trained, else the first."""
    parse(found, "parents", "costs")
    chosen: dict[str, Row] = {}
    for row in found:
        if row["digest"] not in chosen or row["verdict"] == "new":
            chosen[row["digest"]] = row
    return tuple(_mechanism(row, results, ended) for row in chosen.values())


def _mechanism(row: Row, results: Mapping[str, Result], ended: Mapping[str, str]) -> Mechanism:
    is_new = row["verdict"] == "new"
    state = ended.get(row["key"], "waiting") if is_new else "known"
    return Mechanism(
        digest=row["digest"],
        key=row["key"],
        genome=row["genome"],
        formula=row["formula"],
        operator=row["operator"],
        name=row["name"],
        number=row["number"],
        parents=tuple(row["parents"]),
        note=row["note"],
        costs=row["costs"],
        state="rejected" if row["verdict"] == "rejected" else state,
        result=results[row["key"]] if is_new else None,
    )


def _names(found: Sequence[Mechanism]) -> dict[str, tuple[str, ...]]:
    """The names that the search wrote down when it proposed the mechanisms."""
    names: dict[str, tuple[str, ...]] = {}
    for one in found:
        if one.key and one.name:
            names[one.key] = (*names.get(one.key, ()), one.name)
    return names


def _fresh(
    confirmations: Sequence[Confirmation],
) -> dict[str, dict[str, tuple[Confirmation, ...]]]:
    """By title and mechanism; of several tasks of one part, each has its name in the title."""
    tasks = {part: Counter(one.task for one in confirmations if one.part == part) for part in FRESH}
    fresh: dict[str, dict[str, tuple[Confirmation, ...]]] = {}
    for one in sorted(confirmations, key=lambda one: [*FRESH].index(one.part)):
        title = title_of(one, len(tasks[one.part]) > 1)
        own = fresh.setdefault(title, {})
        if one.evaluation.is_ok:
            own[one.key] = (*own.get(one.key, ()), one)
    return fresh


def title_of(one: Confirmation, is_one_of_several: bool) -> str:
    """What answers call a part of a confirmation."""
    return f"{FRESH[one.part]} {one.task_name}" if is_one_of_several else FRESH[one.part]


def spread(values: Mapping[int, float]) -> tuple[float, float | None, int] | None:
    """Mean, standard error, and of how many; None of nothing."""
    if not values:
        return None
    return (*mean_and_error(list(values.values())), len(values))


def shares(content: Content, key: str) -> dict[str, float]:
    """The costs of a mechanism as shares of standard attention's, by name."""
    own = content.trained[key].costs
    standard = content.trained.get(content.standard or "")
    base = standard.costs if standard else {}
    return {name: own[name] / base[name] for name in own if base.get(name)}
