"""The task family ``suite``: several tasks, in each of which a candidate is trained.

    regret = (score - mha's) / (uniform's - mha's)          worst_regret = the largest of them

is 0 for standard attention and 1 for the plain mean of all tokens, whatever a task measures; below
0 a candidate is better than standard attention. A candidate is as good as its worst regret: what it
gains in one task never hides what it loses in another. A member with a gate has no regret. It is a
condition: a candidate that misses it is trained no further, and cannot be in a front.

What mha and ``uniform`` score is the suite's ``references``; a search measures them at its start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

from pydantic import Field, FiniteFloat, field_serializer, model_validator

from nas.common.config import Frozen, Name, describe, near
from nas.common.errors import ConfigError, TaskError
from nas.common.objectives import REGRET, Metric
from nas.tasks.base import RECIPE, TASKS, Data, ModelTask, Task, fingerprint_of
from nas.tasks.loading import load_task, parse_task

WORST: Final = "worst_regret"

Scores = Mapping[str, Mapping[str, float]]  # by member, then by metric


class Gate(Frozen):
    """What a member's metric must be; exactly one of the bounds is given."""

    metric: str
    at_least: float | None = None
    at_most: float | None = None

    @model_validator(mode="after")
    def _has_one_bound(self) -> Gate:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("expected one of at_least and at_most")
        return self

    def missed(self, scores: Mapping[str, float]) -> str:
        """How scores miss it, or nothing; what is not a number does."""
        value, low, high = scores[self.metric], self.at_least, self.at_most
        if low is not None and not value >= low:
            return f"{self.metric} is {value:.4g}, and must be at least {low:g}"
        if high is not None and not value <= high:
            return f"{self.metric} is {value:.4g}, and must be at most {high:g}"
        return ""


class Member(Frozen):
    """One of a suite's tasks.

    Attributes:
        task: in YAML by name or path, by default the member's name, or its fields; further keys of
            the member set fields of it.
        gate: what a candidate must reach in it.
    """

    task: ModelTask
    gate: Gate | None = None

    @field_serializer("task")
    def _plain(self, task: ModelTask) -> dict[str, Any]:
        return task.to_dict()


class Reference(Frozen):
    """What standard attention and the plain mean of all tokens score in a member's metric."""

    metric: str
    mha: FiniteFloat
    uniform: FiniteFloat

    @model_validator(mode="after")
    def _are_apart(self) -> Reference:
        if self.mha == self.uniform:
            raise ValueError("mha and uniform are equal, so nothing can be relative to them")
        return self

    def regret(self, score: float) -> float:
        """0 for what mha scores, 1 for what ``uniform`` does."""
        return (score - self.mha) / (self.uniform - self.mha)


@TASKS.register("suite")
class Suite(Task):
    """Several tasks.

    Attributes:
        data: of members that take other data than their own: by name in YAML, or as text,
            ``NAME=DATA,NAME=DATA``.
        members: by name, in the order in which they are trained: gates and cheap ones first.
        counted_at: the member at whose sizes mechanisms are named and counted; by default the
            first without a gate. Where one is causal, it must be.
        references: of members without a gate; empty where they are not measured yet.
    """

    kind: ClassVar[str] = "suite"
    data_kinds: ClassVar[tuple[str, ...]] = ()

    data: str = ""
    members: dict[Name, Member] = Field(min_length=1)
    counted_at: str = ""
    references: dict[str, Reference] = {}

    @model_validator(mode="before")
    @classmethod
    def _tasks_are_read(cls, fields: Any) -> Any:
        members = fields.get("members") if isinstance(fields, dict) else None
        if not isinstance(members, dict) or not members:
            return fields  # pydantic says what is wrong
        data = _by_member(fields.get("data") or {}, members)
        read = {name: _read(name, given, data.get(name)) for name, given in members.items()}
        return {**fields, "data": "", "members": read}

    @model_validator(mode="after")
    def _members_fit(self) -> Suite:
        judged = [*self.regret_tasks]
        if not judged:
            raise ValueError("every member has a gate; expected one without, whose regret counts")
        at = self.counted_at or judged[0]
        if at not in self.members:
            hint = near(at, self.members)
            expected = ", ".join(self.members)
            raise ValueError(f"counted_at is {at!r}{hint}; expected one of {expected}")
        if unknown := [name for name in self.references if name not in judged]:
            raise ValueError(f"references: found {unknown[0]!r}; expected {', '.join(judged)}")
        causal = [name for name, member in self.members.items() if member.task.is_causal]
        if causal and at not in causal:
            raise ValueError(
                f"mechanisms are counted at {at}, which is not causal; expected counted_at to name "
                f"one that is: {', '.join(causal)}"
            )
        return self

    @property
    def regret_tasks(self) -> dict[str, ModelTask]:
        """The members whose regrets count: those without a gate."""
        return {name: member.task for name, member in self.members.items() if not member.gate}

    @property
    def main(self) -> ModelTask:
        """The member that ``counted_at`` names."""
        return self.members[self.counted_at or next(iter(self.regret_tasks))].task

    def load(self) -> Data:
        """The data of all members.

        Raises:
            ConfigError: a gate or reference is about no metric of its member.
        """
        parts = {name: member.task.load() for name, member in self.members.items()}
        for name, member in self.members.items():
            known = [metric.name for metric in member.task.metrics(parts[name])]
            asked = {"gate": member.gate, "reference": self.references.get(name)}
            for what, one in asked.items():
                if one is not None and one.metric not in known:
                    raise ConfigError(
                        f"task {self.name}, {name}, {what}: found {one.metric!r}"
                        f"{near(one.metric, known)}; expected one of {', '.join(known)}."
                    )
        return _joined(parts)

    def load_test(self) -> Data:
        """Test sets where there is no gate; raises DataError where one of these has none."""
        return _joined(
            {
                name: member.task.load() if member.gate else member.task.load_test()
                for name, member in self.members.items()
            }
        )

    def models(self, data: Data) -> dict[str, tuple[ModelTask, Data]]:
        """The members."""
        return {name: (member.task, data.parts[name]) for name, member in self.members.items()}

    def metrics(self, data: Data) -> tuple[Metric, ...]:
        """The worst regret where references are known, then each member's own."""
        listed = [
            replace(metric, name=f"{name}.{metric.name}")
            for name in dict.fromkeys([*self.regret_tasks, *self.members])
            for metric in self.members[name].task.metrics(data.parts[name])
        ]
        if self.references.keys() != self.regret_tasks.keys():
            return tuple(listed)
        ideals = {metric.name: metric.ideal for metric in listed}
        best = [one.regret(ideals[f"{name}.{one.metric}"]) for name, one in self.references.items()]
        about = f"largest regret over {', '.join(self.regret_tasks)}; mha's is 0, uniform's 1"
        return (Metric(WORST, "", "min", 1.0, max(best), about), *listed)

    def summary(self, found: Scores) -> dict[str, float]:
        """Metrics as ``member.metric``, regrets, and the worst of them once all are there."""
        values = {f"{name}.{m}": value for name, own in found.items() for m, value in own.items()}
        regrets = {
            name: one.regret(found[name][one.metric])
            for name, one in self.references.items()
            if name in found
        }
        values |= {f"{name}{REGRET}": regret for name, regret in regrets.items()}
        if regrets and regrets.keys() == self.regret_tasks.keys():
            values[WORST] = max(regrets.values())
        return values

    def missed(self, found: Scores) -> str:
        """How a gate was missed, or nothing."""
        for name, scores in found.items():
            gate = self.members[name].gate
            if gate and (how := gate.missed(scores)):
                return f"gate of {name}: {how}"
        return ""

    def without_gates(self) -> Suite:
        """The members whose regrets count, alone."""
        judged = {name: self.members[name] for name in self.regret_tasks}
        return self.model_copy(update={"members": judged, "counted_at": ""})

    def with_references(self, references: Mapping[str, Reference]) -> Suite:
        """The same, which knows what mha and ``uniform`` score."""
        return self.model_copy(update={"references": dict(references)})

    def fingerprint(self) -> str:
        """A digest, 16 hex characters, of everything that changes a result, data apart."""
        members = [
            [name, member.task.fingerprint(), member.gate and member.gate.model_dump()]
            for name, member in self.members.items()
        ]
        known = {name: one.model_dump() for name, one in self.references.items()}
        return fingerprint_of([self.kind, RECIPE, members, self.counted_at, known])


def _joined(parts: Mapping[str, Data]) -> Data:
    """The data of all members as one."""
    return Data(
        name=",".join(f"{name}={part.name}" for name, part in parts.items()),
        train={},
        validation={},
        digest=fingerprint_of({name: part.digest for name, part in parts.items()}),
        parts=parts,
    )


def _by_member(data: Any, members: Iterable[str]) -> dict[str, str]:
    """What ``NAME=DATA,NAME=DATA`` says, or a mapping."""
    given = data
    if isinstance(data, str):
        pairs = (piece.partition("=") for piece in data.split(","))
        given = {name: spec for name, _, spec in pairs}
    is_good = isinstance(given, dict) and all(isinstance(v, str) and v for v in given.values())
    if not is_good or not given.keys() <= set(members):
        raise ConfigError(
            f"data: found {data!r}; a suite's are given as NAME=DATA,NAME=DATA, with some of the "
            f"names {', '.join(members)}."
        )
    return dict(given)


def _read(name: str, given: Any, data: str | None) -> Any:
    """A member's fields with its task as an object; one that is none is left for pydantic."""
    if isinstance(given, Member | None):
        given = {} if given is None else {"task": given.task, "gate": given.gate}
    if not isinstance(given, dict):
        return given
    own = {key: value for key, value in given.items() if key not in ("task", "gate")}
    task, where = given.get("task", name), f"members, {name}, task"
    if isinstance(task, Task):
        task = task.to_dict()
    if not isinstance(task, str | dict):
        raise ConfigError(f"{where}: found {describe(task)}; expected a task's name or fields.")
    if isinstance(task, str):
        found = load_task(task, data=data or own.pop("data", None), overrides=own)
    else:
        found = parse_task({**task, **own, **({"data": data} if data else {})}, where)
    if not isinstance(found, ModelTask):
        raise TaskError(f"{where}: found a {found.kind}; expected a task that trains one model.")
    return {"task": found, "gate": given.get("gate")}
