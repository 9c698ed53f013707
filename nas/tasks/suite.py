"""The task family ``suite``: each candidate is trained in several tasks, the suite's members.

    regret = (s - s_mha) / (s_uniform - s_mha)          worst_regret = largest regret

Here s is the candidate's value of one metric of a member; s_mha and s_uniform are the values
of two references: standard attention (mha), and the mean of all tokens (uniform). So mha has the
regret 0 and uniform has the regret 1. The objective is the worst regret, so that a gain in one
member never hides a loss in another member. The references are trained when a search starts.

A member may have a gate, that is, a bound on one of its metrics. Such a member has no regret. A
candidate that misses the bound is not trained in later members and cannot be in a front.
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
    """A bound on a metric of one task of a suite: ``at_least`` or ``at_most`` is set, not both.

    A candidate that misses the bound is not trained in later tasks.
    """

    metric: str
    at_least: float | None = None
    at_most: float | None = None

    @model_validator(mode="after")
    def _has_one_bound(self) -> Gate:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("expected one of at_least and at_most")
        return self

    def missed(self, scores: Mapping[str, float]) -> str:
        """Return a text that says how the metrics ``scores`` miss this bound; "" if they do not."""
        value, low, high = scores[self.metric], self.at_least, self.at_most
        if low is not None and not value >= low:
            return f"{self.metric} is {value:.4g}, and must be at least {low:g}"
        if high is not None and not value <= high:
            return f"{self.metric} is {value:.4g}, and must be at most {high:g}"
        return ""


class Member(Frozen):
    """One task of a suite, whose file has an entry ``name: {...}`` for each member.

    The key ``task`` of an entry is the name, the path or the fields of a task; by default it is the
    name of the entry. Keys other than ``task`` and ``gate`` replace fields of the task.

    Attributes:
        gate: the bound on a metric that a candidate must satisfy. If it is None, candidates are
            compared by their metric in this task.
    """

    task: ModelTask
    gate: Gate | None = None

    @field_serializer("task")
    def _plain(self, task: ModelTask) -> dict[str, Any]:
        return task.to_dict()


class Reference(Frozen):
    """The values of a metric for standard attention (mha) and for the mean of all tokens (uniform).

    Attributes:
        metric: name of the metric.
        mha, uniform: the values.
    """

    metric: str
    mha: FiniteFloat
    uniform: FiniteFloat

    @model_validator(mode="after")
    def _differ(self) -> Reference:
        if self.mha == self.uniform:
            raise ValueError("mha and uniform are equal, so nothing can be relative to them")
        return self

    def regret(self, score: float) -> float:
        """Return a metric's value rescaled so that mha's value becomes 0 and uniform's 1."""
        return (score - self.mha) / (self.uniform - self.mha)

    def score(self, regret: float) -> float:
        """Return the metric's value that has the given regret."""
        return self.mha + regret * (self.uniform - self.mha)


@TASKS.register("suite")
class Suite(Task):
    """Several tasks, the members, in each of which every candidate is trained.

    Attributes:
        data: data specs by member, which replace the data specs of the members' tasks; in YAML a
            mapping or the text ``NAME=DATA,NAME=DATA``. It is "" after loading.
        members: members by name, in the order of training. Members with a gate (a bound on a
            metric) and members with short trainings should come first.
        counted_at: name of the member at whose width, heads, layers and tokens costs are computed;
            "" for the first member without a gate. If any member is causal, so must this one be.
        references: values of mha and uniform in each member without a gate; empty until measured.
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
        """The tasks of all members without a gate (a bound on a metric), by name."""
        return {name: member.task for name, member in self.members.items() if not member.gate}

    @property
    def only(self) -> ModelTask | None:
        """The task of the member without a gate; None if there are several."""
        tasks = [*self.regret_tasks.values()]
        return tasks[0] if len(tasks) == 1 else None

    @property
    def main(self) -> ModelTask:
        """The task at whose sizes costs of mechanisms are computed; see ``counted_at``."""
        return self.members[self.counted_at or next(iter(self.regret_tasks))].task

    def load(self) -> Data:
        """Return the data of all members (tasks) of the suite.

        Raises:
            ConfigError: a gate or reference does not name a metric of its member.
            DataError: the data of a member cannot be read.
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
        """Return the data of all members; those without a gate have test sets for validation.

        Raises:
            DataError: a member without a gate has no test set, or data cannot be read.
        """
        members = self.members.items()
        return _joined(
            {name: m.task.load() if m.gate else m.task.load_test() for name, m in members}
        )

    def models(self, data: Data) -> dict[str, tuple[ModelTask, Data]]:
        """Return the task and the data of each member, by the name of the member."""
        return {name: (member.task, data.parts[name]) for name, member in self.members.items()}

    def metrics(self, data: Data) -> tuple[Metric, ...]:
        """Return descriptions of the worst regret and of the metrics of each member.

        The worst regret is left out until the references have been measured.
        """
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
        """Return the metrics and the regrets of the members trained so far, by name.

        The name of a metric is ``member.metric``. Without references the metrics of an ``only``
        member have their own names, too. The worst regret is included if all members without a
        gate have a regret.
        """
        values = {
            f"{name}.{m}": value for name, scores in metrics.items() for m, value in scores.items()
        }
        regrets = {
            name: reference.regret(metrics[name][reference.metric])
            for name, reference in self.references.items()
            if name in metrics
        }
        values |= {f"{name}{REGRET}": regret for name, regret in regrets.items()}
        if self.only is not None and not self.references:
            values |= next((metrics[name] for name in self.regret_tasks if name in metrics), {})
        if regrets and regrets.keys() == self.regret_tasks.keys():
            values[WORST] = max(regrets.values())
        return values

    def missed(self, metrics: Scores) -> str:
        """Return which member's bound a candidate's metrics miss, and how; "" if none."""
        for name, scores in metrics.items():
            gate = self.members[name].gate
            if gate and (how := gate.missed(scores)):
                return f"gate of {name}: {how}"
        return ""

    def without_gates(self) -> Suite:
        """Return the suite of those members that have no gate (bound on a metric)."""
        members = {name: self.members[name] for name in self.regret_tasks}
        return self.model_copy(update={"members": members, "counted_at": ""})

    def with_references(self, references: Mapping[str, Reference]) -> Suite:
        """Return a copy of the suite with the given references, by member."""
        return self.model_copy(update={"references": dict(references)})

    def fingerprint(self) -> str:
        """Return a digest, 16 hex characters, of the fields that change metrics, without data."""
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
    """Return data specs by member, from a mapping or from the text ``NAME=DATA,NAME=DATA``.

    Raises:
        ConfigError: the data have another form, or name an unknown member.
    """
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
    """Return the fields of a `Member`, with its task loaded, from its fields in YAML.

    Fields that are not a mapping are returned unchanged, so that pydantic reports them.

    Args:
        name: name of the member.
        spec: data spec that replaces the task's data spec; None keeps it.

    Raises:
        ConfigError: the task's fields are invalid.
        TaskError: the task does not exist, or trains several models.
    """
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
