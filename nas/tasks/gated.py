"""The task family ``gated``: short tasks, the gates, must be solved before the scored task.

Each gate bounds one metric of its task. A candidate is trained under the gates in their order, then
under the scored task, whose metrics are its scores. A candidate that misses a bound is not trained
further and cannot be in a front.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import Field, field_serializer, model_validator

from nas.common.config import Frozen, Name, describe, near
from nas.common.errors import ConfigError, TaskError
from nas.common.objectives import Metric
from nas.tasks.base import RECIPE, TASKS, Data, ModelTask, Task, fingerprint_of
from nas.tasks.loading import load_task, parse_task


class _TaskField(Frozen):
    """The field ``task``: in YAML the name or the path of a task, or a mapping of its fields.

    In a mapping without ``kind``, the other fields replace fields of the task that ``name`` names.
    """

    task: ModelTask

    @field_serializer("task")
    def _plain(self, task: ModelTask) -> dict[str, Any]:
        return task.to_dict()


class Gate(_TaskField):
    """A bound on a metric of a task: ``at_least`` or ``at_most`` is set, not both.

    The default of ``task`` is the task with the name of the gate.
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
        """Return a text that says how ``scores`` miss the bound; "" if they do not."""
        value, low, high = scores[self.metric], self.at_least, self.at_most
        if low is not None and not value >= low:
            return f"{self.metric} is {value:.4g}, and must be at least {low:g}"
        if high is not None and not value <= high:
            return f"{self.metric} is {value:.4g}, and must be at most {high:g}"
        return ""


@TASKS.register("gated")
class GatedTask(_TaskField, Task):
    """A scored task, ``task``, after ``gates``, by name in the order of training.

    ``data`` is the data spec of the scored task. The metrics of a gate have its name as prefix, as
    in "recall.accuracy". Costs of mechanisms are computed at the sizes of the scored task.
    """

    kind: ClassVar[str] = "gated"

    data: str = ""
    gates: dict[Name, Gate] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _load_tasks(cls, fields: Any) -> Any:
        if not isinstance(fields, dict) or "task" not in fields:
            return fields  # pydantic reports it
        task, gates = _load(fields["task"], "task", fields.get("data")), fields.get("gates")
        if isinstance(gates, dict):
            gates = {name: _with_task(name, gate) for name, gate in gates.items()}
        return {**fields, "data": task.data, "task": task, "gates": gates}

    @model_validator(mode="after")
    def _is_consistent(self) -> GatedTask:
        causal = [name for name, gate in self.gates.items() if gate.task.is_causal]
        if causal and not self.task.is_causal:
            raise ValueError(
                f"the gate {causal[0]} is causal and {self.task.name} is not; expected a causal "
                "task, so that mechanisms of both are the same"
            )
        return self

    @property
    def main(self) -> ModelTask:
        return self.task

    def load(self) -> Data:
        return self._joined(self.task.load())

    def load_test(self) -> Data:
        return self._joined(self.task.load_test())

    def _joined(self, scored: Data) -> Data:
        parts = {name: gate.task.load() for name, gate in self.gates.items()} | {"": scored}
        for name, gate in self.gates.items():
            known = [metric.name for metric in gate.task.metrics(parts[name])]
            if gate.metric not in known:
                raise ConfigError(
                    f"task {self.name}, gate {name}, metric: found {gate.metric!r}"
                    f"{near(gate.metric, known)}; expected one of {', '.join(known)}."
                )
        digest = fingerprint_of({name: part.digest for name, part in parts.items()})
        return Data(scored.name, train={}, validation={}, digest=digest, parts=parts)

    def models(self, data: Data) -> dict[str, tuple[ModelTask, Data]]:
        tasks = {name: gate.task for name, gate in self.gates.items()} | {"": self.task}
        return {name: (task, data.parts[name]) for name, task in tasks.items()}

    def metrics(self, data: Data) -> tuple[Metric, ...]:
        """Return descriptions of the metrics of the scored task, then of those of the gates."""
        gates = (
            replace(metric, name=f"{name}.{metric.name}")
            for name, gate in self.gates.items()
            for metric in gate.task.metrics(data.parts[name])
        )
        return (*self.task.metrics(data.parts[""]), *gates)

    def missed(self, metrics: Mapping[str, Mapping[str, float]]) -> str:
        for name, scores in metrics.items():
            if name and (how := self.gates[name].missed(scores)):
                return f"gate of {name}: {how}"
        return ""

    def at_rates(self) -> Mapping[float, Task]:
        rates = self.task.at_rates()
        return {rate: self.model_copy(update={"task": task}) for rate, task in rates.items()}

    def fingerprint(self) -> str:
        gates = [
            [name, gate.task.fingerprint(), gate.model_dump(exclude={"task"})]
            for name, gate in self.gates.items()
        ]
        return fingerprint_of([self.kind, RECIPE, gates, self.task.fingerprint()])


def _with_task(name: str, gate: Any) -> Any:
    if not isinstance(gate, dict):
        return gate  # pydantic reports it
    return {**gate, "task": _load(gate.get("task", name), f"gates, {name}, task")}


def _load(task: Any, where: str, data: Any = None) -> ModelTask:
    """Return the task with a name, path or fields; ``data`` replaces its data spec."""
    fields = {"name": task} if isinstance(task, str) else task
    if not isinstance(fields, dict) or not isinstance(fields.get("name"), str):
        raise ConfigError(f"{where}: found {describe(task)}; expected a task's name or fields.")
    fields = dict(fields) if data is None else {**fields, "data": data}
    if "kind" in fields:
        loaded = parse_task(fields, where)
    else:
        name, spec = fields.pop("name"), fields.pop("data", None)
        loaded = load_task(name, data=spec, overrides=fields)
    if not isinstance(loaded, ModelTask):
        raise TaskError(f"{where}: {loaded.name!r} is gated; expected a task without gates.")
    return loaded
