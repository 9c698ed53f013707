"""The task family ``suite``: each candidate is trained in several tasks, the suite's members.

    regret = (score - mha's) / (uniform's - mha's)          worst_regret = largest regret

In each member, the regret of standard attention (mha) is 0, and the regret of the mean of all
tokens (uniform) is 1. A candidate with a negative regret is better than standard attention. The
objective is the worst regret, so that a gain in one member never hides a loss in another member.

A member may have a gate, that is, a bound on one of its metrics. Then it has no regret; a candidate
that misses the gate is not trained in later members and cannot be in a front. The suite's
``references`` are the scores of mha and uniform, which are measured when a search starts.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    """A bound on a member's metric: exactly one of ``at_least`` and ``at_most``."""

    metric: str
    at_least: float | None = None
    at_most: float | None = None

    @model_validator(mode="after")
    def _has_one_bound(self) -> Gate:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("expected one of at_least and at_most")
        return self

    def missed(self, scores: Mapping[str, float]) -> str:
        """Return how scores miss the bound; empty if they do not. NaN misses any bound."""
        value, low, high = scores[self.metric], self.at_least, self.at_most
        if low is not None and not value >= low:
            return f"{self.metric} is {value:.4g}, and must be at least {low:g}"
        if high is not None and not value <= high:
            return f"{self.metric} is {value:.4g}, and must be at most {high:g}"
        return ""


class Member(Frozen):
    """One task of a suite.

    Attributes:
        task: the task; in YAML its name, path or fields, by default the member's name. Further keys
            of the member in YAML override fields of the task.
        gate: the bound that a candidate must satisfy; None for a member with a regret.
    """

    task: ModelTask
    gate: Gate | None = None

    @field_serializer("task")
    def _plain(self, task: ModelTask) -> dict[str, Any]:
        return task.to_dict()


class Reference(Frozen):
    """The scores of standard attention (mha) and of the mean of all tokens (uniform)."""

    metric: str
    mha: FiniteFloat
    uniform: FiniteFloat

    @model_validator(mode="after")
    def _differ(self) -> Reference:
        if self.mha == self.uniform:
            raise ValueError("mha and uniform are equal, so nothing can be relative to them")
        return self

    def regret(self, score: float) -> float:
        """Return the regret of a score: 0 for the score of mha, 1 for the score of uniform."""
        return (score - self.mha) / (self.uniform - self.mha)


@TASKS.register("suite")
class Suite(Task):
    """Several tasks, in each of which every candidate is trained.

    Attributes:
        data: data specs that replace the data specs of members; in YAML a mapping, or the text
            ``NAME=DATA,NAME=DATA``.
        members: members by name, in the order of training; gates and cheap tasks come first.
        counted_at: name of the member at whose sizes mechanisms are resolved and counted; by
            default the first member without a gate. It must be causal if any member is causal.
        references: scores of mha and uniform in each member without a gate; empty until they are
            measured.
    """

    kind: ClassVar[str] = "suite"
    data_kinds: ClassVar[tuple[str, ...]] = ()

    data: str = ""
    members: dict[Name, Member] = Field(min_length=1)
    counted_at: str = ""
    references: dict[str, Reference] = {}

    @model_validator(mode="before")
    @classmethod
    def _load_members(cls, fields: Any) -> Any:
        members = fields.get("members") if isinstance(fields, dict) else None
        if not isinstance(members, dict) or not members:
            return fields  # pydantic reports it
        specs = _specs(fields.get("data") or {}, members)
        loaded = {name: _load(name, fields, specs.get(name)) for name, fields in members.items()}
        return {**fields, "data": "", "members": loaded}

    @model_validator(mode="after")
    def _is_consistent(self) -> Suite:
        names = [*self.regret_tasks]
        if not names:
            raise ValueError("every member has a gate; expected one without, whose regret counts")
        at = self.counted_at or names[0]
        if at not in self.members:
            expected = ", ".join(self.members)
            raise ValueError(
                f"counted_at is {at!r}{near(at, self.members)}; expected one of {expected}"
            )
        if unknown := [name for name in self.references if name not in names]:
            raise ValueError(f"references: found {unknown[0]!r}; expected {', '.join(names)}")
        causal = [name for name, member in self.members.items() if member.task.is_causal]
        if causal and at not in causal:
            raise ValueError(
                f"mechanisms are counted at {at}, which is not causal; expected counted_at to name "
                f"one that is: {', '.join(causal)}"
            )
        return self

    @property
    def regret_tasks(self) -> dict[str, ModelTask]:
        """The tasks of all members without a gate, by name."""
        return {name: member.task for name, member in self.members.items() if not member.gate}

    @property
    def main(self) -> ModelTask:
        """The task of the member that ``counted_at`` names."""
        return self.members[self.counted_at or next(iter(self.regret_tasks))].task

    def load(self) -> Data:
        """Return the data of all members.

        Raises:
            ConfigError: a gate or reference does not name a metric of its member.
        """
        parts = {name: member.task.load() for name, member in self.members.items()}
        for name, member in self.members.items():
            known = [metric.name for metric in member.task.metrics(parts[name])]
            rules = {"gate": member.gate, "reference": self.references.get(name)}
            for kind, rule in rules.items():
                if rule is not None and rule.metric not in known:
                    raise ConfigError(
                        f"task {self.name}, {name}, {kind}: found {rule.metric!r}"
                        f"{near(rule.metric, known)}; expected one of {', '.join(known)}."
                    )
        return _joined(parts)

    def load_test(self) -> Data:
        """Return the data with test sets for all members without a gate.

        Raises:
            DataError: a member without a gate has no test set.
        """
        members = self.members.items()
        return _joined(
            {name: m.task.load() if m.gate else m.task.load_test() for name, m in members}
        )

    def models(self, data: Data) -> dict[str, tuple[ModelTask, Data]]:
        """Return the tasks of all members with their data, by name."""
        return {name: (member.task, data.parts[name]) for name, member in self.members.items()}

    def metrics(self, data: Data) -> tuple[Metric, ...]:
        """Return the worst regret if references are known, then the metrics of each member."""
        metrics = [
            replace(metric, name=f"{name}.{metric.name}")
            for name in dict.fromkeys([*self.regret_tasks, *self.members])
            for metric in self.members[name].task.metrics(data.parts[name])
        ]
        if self.references.keys() != self.regret_tasks.keys():
            return tuple(metrics)
        ideals = {metric.name: metric.ideal for metric in metrics}
        best = max(r.regret(ideals[f"{name}.{r.metric}"]) for name, r in self.references.items())
        about = f"largest regret over {', '.join(self.regret_tasks)}; mha's is 0, uniform's 1"
        return (Metric(WORST, "", "min", 1.0, best, about), *metrics)

    def summary(self, metrics: Scores) -> dict[str, float]:
        """Return metrics as ``member.metric``, and regrets; the worst regret once all are known."""
        values = {
            f"{name}.{m}": value for name, scores in metrics.items() for m, value in scores.items()
        }
        regrets = {
            name: reference.regret(metrics[name][reference.metric])
            for name, reference in self.references.items()
            if name in metrics
        }
        values |= {f"{name}{REGRET}": regret for name, regret in regrets.items()}
        if regrets and regrets.keys() == self.regret_tasks.keys():
            values[WORST] = max(regrets.values())
        return values

    def missed(self, metrics: Scores) -> str:
        """Return how a gate was missed; empty if no gate was missed."""
        for name, scores in metrics.items():
            gate = self.members[name].gate
            if gate and (how := gate.missed(scores)):
                return f"gate of {name}: {how}"
        return ""

    def without_gates(self) -> Suite:
        """Return a suite of all members without a gate."""
        members = {name: self.members[name] for name in self.regret_tasks}
        return self.model_copy(update={"members": members, "counted_at": ""})

    def with_references(self, references: Mapping[str, Reference]) -> Suite:
        """Return the same suite with references."""
        return self.model_copy(update={"references": dict(references)})

    def fingerprint(self) -> str:
        """Return a digest of all fields that change results, except the data, 16 hex characters."""
        members = [
            [name, member.task.fingerprint(), member.gate and member.gate.model_dump()]
            for name, member in self.members.items()
        ]
        references = {name: r.model_dump() for name, r in self.references.items()}
        return fingerprint_of([self.kind, RECIPE, members, self.counted_at, references])


def _joined(parts: Mapping[str, Data]) -> Data:
    return Data(
        name=",".join(f"{name}={part.name}" for name, part in parts.items()),
        train={},
        validation={},
        digest=fingerprint_of({name: part.digest for name, part in parts.items()}),
        parts=parts,
    )


def _specs(data: Any, members: Mapping[str, Any]) -> dict[str, str]:
    """Return data specs by member, from a mapping or from ``NAME=DATA,NAME=DATA``."""
    specs = data
    if isinstance(data, str):
        specs = {name: spec for name, _, spec in (p.partition("=") for p in data.split(","))}
    is_valid = isinstance(specs, dict) and all(isinstance(v, str) and v for v in specs.values())
    if not is_valid or not specs.keys() <= members.keys():
        raise ConfigError(
            f"data: found {data!r}; a suite's are given as NAME=DATA,NAME=DATA, with some of the "
            f"names {', '.join(members)}."
        )
    return dict(specs)


def _load(name: str, fields: Any, spec: str | None) -> Any:
    """Return a member's fields with its task loaded; pydantic reports invalid fields later."""
    fields = {} if fields is None else fields
    if not isinstance(fields, dict):
        return fields
    changes = {key: value for key, value in fields.items() if key not in ("task", "gate")}
    task, where = fields.get("task", name), f"members, {name}, task"
    if isinstance(task, str):
        loaded = load_task(task, data=spec or changes.pop("data", None), overrides=changes)
    elif isinstance(task, dict):
        loaded = parse_task({**task, **changes, **({"data": spec} if spec else {})}, where)
    else:
        raise ConfigError(f"{where}: found {describe(task)}; expected a task's name or fields.")
    if not isinstance(loaded, ModelTask):
        raise TaskError(f"{where}: found a {loaded.kind}; expected a task that trains one model.")
    return {"task": loaded, "gate": fields.get("gate")}
