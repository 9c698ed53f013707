"""Copies of space, policy (path rules) and task in a run, and their conversion back to objects.

A new search reads space and policy back from the copies, so it proposes what a resumed one does.
"""

from __future__ import annotations

from pathlib import Path

from nas.common.config import M, dump_yaml, parse_model, parse_yaml
from nas.common.errors import RunError
from nas.evaluation.trial import task_fingerprint
from nas.space import SearchSpace
from nas.space.rules import load_policy
from nas.store.records import Document
from nas.tasks.base import Data, Task


def frozen_space(space: SearchSpace) -> tuple[Document, Document]:
    """Return the texts of a space and of its policy, with default values, which may change."""
    policy = load_policy(space.policy)
    space_text, policy_text = (
        dump_yaml(model.model_dump(mode="json", by_alias=True)) for model in (space, policy)
    )
    return Document.of(space.name, space_text), Document.of(policy.name, policy_text)


def from_text(document: Document, model: type[M]) -> M:
    """Return the space or policy that a document of ``frozen_space`` describes."""
    where = f"the run's copy of {document.name}"
    return parse_model(parse_yaml(document.text, where), model, where)


def frozen_task(task: Task, data: Data) -> Document:
    """Return a task as text, with the fingerprint of its fields and data."""
    return Document(task.name, dump_yaml(task.to_dict()), task_fingerprint(task, data))


def load_frozen_task(document: Document, data: str | None = None) -> Task:
    """Return the task that a document of ``frozen_task`` describes; ``data`` replaces its data."""
    from nas.tasks import parse_task

    where = f"the run's copy of {document.name}"
    fields = parse_yaml(document.text, where)
    return parse_task(fields if data is None else {**fields, "data": data}, where)


def load_unchanged(folder: Path, document: Document, task: Task) -> Data:
    """Return the data of a run's task; raise RunError if task or data changed since the start."""
    data = task.load()
    if task_fingerprint(task, data) != document.fingerprint:
        raise RunError(
            f"{folder}: task {task.name!r} or its data {data.name} have changed since the run "
            "began, and results would not be comparable. Restore them, say where the data are now, "
            "or start a new run."
        )
    return data
