"""Read tasks from YAML files; ``kind`` names the family, built-in tasks lie in this package.

``for_data`` in a task file overrides fields for some kinds of data (a small set needs more epochs).
It is resolved on loading, so that a task object, and its copy in a run, holds the final values.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from nas.common.config import describe, near, parse_model, read_document
from nas.common.errors import ConfigError, TaskError
from nas.tasks.base import TASKS, Task

BUILT_IN: Final = Path(__file__).parent


def load_task(
    name_or_path: str, *, data: str | None = None, overrides: Mapping[str, Any] | None = None
) -> Task:
    """Read a task by name or by path.

    Args:
        data: a data spec, in place of the task's.
        overrides: fields that override those of the file.

    Raises:
        TaskError: there is no such task or family.
        ConfigError: the file cannot be read, or a field is invalid.
    """
    path = _find(name_or_path)
    document = read_document(path)
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: found {describe(document)}; expected a mapping of keys.")
    fields = dict(document)
    for_data = fields.pop("for_data", None) or {}
    changes = {**(overrides or {}), **({"data": data} if data else {})}
    family = _family(fields, str(path))
    spec = changes.get("data") or fields.get("data") or family.model_fields["data"].default
    fields |= _fields_for(for_data, spec, family, str(path))
    where = f"{path} with data {spec}" if data else str(path)
    where += f" (with {', '.join(overrides)} set by the space or caller)" if overrides else ""
    return parse_task({**fields, **changes}, where)


def parse_task(fields: Any, where: str) -> Task:
    """A task from plain data, the inverse of ``Task.to_dict``.

    Raises:
        TaskError: there is no such family.
        ConfigError: a field is invalid.
    """
    if not isinstance(fields, dict):
        raise ConfigError(f"{where}: found {describe(fields)}; expected a mapping of keys.")
    family = _family(fields, where)
    return parse_model({k: v for k, v in fields.items() if k != "kind"}, family, where)


def built_in_tasks() -> list[str]:
    """The names of the built-in tasks, sorted."""
    return sorted(path.stem for path in BUILT_IN.glob("*.yaml"))


def _find(name_or_path: str) -> Path:
    path = Path(name_or_path)
    if path.suffix in {".yaml", ".yml", ".json"}:
        return path
    names = built_in_tasks()
    if name_or_path in names:
        return BUILT_IN / f"{name_or_path}.yaml"
    raise TaskError(
        f"there is no task {name_or_path!r}{near(name_or_path, names)}; expected the path of a "
        f"YAML file or one of {', '.join(names)}."
    )


def _family(fields: Mapping[str, Any], where: str) -> type[Task]:
    if "kind" not in fields:
        names = ", ".join(TASKS.names())
        raise TaskError(f"{where}: the key 'kind' is missing; expected one of {names}.")
    try:
        return TASKS.get(str(fields["kind"]))
    except TaskError as error:
        raise TaskError(f"{where}, kind: {error}") from None


def _fields_for(for_data: Any, spec: Any, family: type[Task], where: str) -> dict[str, Any]:
    """The fields that ``for_data`` sets for a data spec."""
    if not isinstance(for_data, dict) or not all(isinstance(v, dict) for v in for_data.values()):
        raise ConfigError(f"{where}, for_data: expected a mapping from data to fields of the task.")
    for kind in for_data:
        if kind not in family.data_kinds:
            raise ConfigError(
                f"{where}, for_data: found {kind!r}{near(kind, family.data_kinds)}; "
                f"expected one of {', '.join(family.data_kinds)}."
            )
    return dict(for_data.get(str(spec).partition(":")[0], {}))
