"""Frozen copies of space, policy and task in a run, and their conversion back to objects.

A new run reads its frozen copies too, so that a resumed run cannot differ from it.
"""

from __future__ import annotations

from pathlib import Path

import pydantic

from nas.common.config import M, dump_yaml, parse_model, parse_yaml
from nas.common.errors import RunError
from nas.evaluation.trial import task_fingerprint
from nas.space import SearchSpace
from nas.space.validation import load_policy
from nas.store.records import Document
from nas.tasks.base import Data, Task


def frozen(name: str, model: pydantic.BaseModel) -> Document:
    """A frozen space or policy; defaults are written out, because a later nas may change them."""
    return Document.of(name, dump_yaml(model.model_dump(mode="json", by_alias=True)))


def frozen_space(space: SearchSpace) -> tuple[Document, Document]:
    """Frozen space and policy."""
    policy = load_policy(space.policy)
    return frozen(space.name, space), frozen(policy.name, policy.file)


def from_text(document: Document, model: type[M]) -> M:
    """The object that ``frozen`` wrote.

    Raises:
        ConfigError: a field is not valid in this version of nas; the message names it.
    """
    where = f"the run's copy of {document.name}"
    return parse_model(parse_yaml(document.text, where), model, where)


def frozen_task(task: Task, data: Data) -> Document:
    """A frozen task; its fingerprint covers the task's fields and the content of the data."""
    return Document(task.name, dump_yaml(task.to_dict()), task_fingerprint(task, data))


def load_frozen_task(document: Document, data: str | None = None) -> Task:
    """The task that ``frozen_task`` wrote, optionally with another data spec.

    Raises:
        ConfigError: a field is not valid in this version of nas; the message names it.
    """
    from nas.tasks import parse_task

    where = f"the run's copy of {document.name}"
    fields = parse_yaml(document.text, where)
    return parse_task(fields if data is None else {**fields, "data": data}, where)


def load_unchanged(folder: Path, document: Document, task: Task) -> Data:
    """Load the data of a run's task.

    Raises:
        RunError: data or task differ from those that the run was begun with.
    """
    data = task.load()
    fingerprint = frozen_task(task, data).fingerprint
    if fingerprint != document.fingerprint:
        raise RunError(
            f"{folder}: task {task.name!r} with the data {data.name} now has the fingerprint "
            f"{fingerprint}, but the run was begun with {document.fingerprint}: data or recipe "
            "have changed, and results would not be comparable. Restore them, say where the data "
            "are now, or start a new run."
        )
    return data
