"""Read tasks from YAML files, whose key ``kind`` names the task family.

The optional key ``for_data`` maps kinds of data to fields that replace the file's fields for these
data; a small data set needs more epochs, for example. A loaded task contains only the final values.
Built-in tasks are YAML files in this package.
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
    """Return the built-in task with a name, or the task in a YAML or JSON file.

    ``data`` replaces the data spec of the file, ``overrides`` other fields. Another
    ``learning_rate`` also removes the file's ``learning_rates``, from which comparisons choose.
    TaskError is raised if there is no such task or task family, ConfigError if the file cannot be
    read or a field is invalid.
    """
    path = find_task(name_or_path)
    fields = read_document(path)
    family = _family(fields, str(path))
    for_data = fields.pop("for_data", None) or {}
    changes = {**(overrides or {}), **({} if data is None else {"data": data})}
    spec = changes.get("data", fields.get("data", family.model_fields["data"].default))
    changes = {**_fields_for(for_data, spec, family, str(path)), **changes}
    if "learning_rate" in changes:  # the file's rates surround the file's rate
        fields.pop("learning_rates", None)
    where = f"{path} with data {spec}" if data else str(path)
    where += f" (with {', '.join(overrides)} set by the space or caller)" if overrides else ""
    return parse_task({**fields, **changes}, where)


def parse_task(fields: Any, where: str) -> Task:
    """Return the task whose fields are ``fields``, as returned by ``Task.to_dict``.

    An unknown task family raises TaskError, and an invalid field ConfigError, with ``where`` at the
    beginning of the message.
    """
    family = _family(fields, where)
    return parse_model({k: v for k, v in fields.items() if k != "kind"}, family, where)


def built_in_tasks() -> list[str]:
    """Return the sorted names of the built-in tasks."""
    return sorted(path.stem for path in BUILT_IN.glob("*.yaml"))


def find_task(name_or_path: str) -> Path:
    """Return the path of the file of a built-in task, or the path itself; TaskError if neither."""
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


def _family(fields: Any, where: str) -> type[Task]:
    if not isinstance(fields, dict):
        raise ConfigError(f"{where}: found {describe(fields)}; expected a mapping of keys.")
    if "kind" not in fields:
        names = ", ".join(TASKS.names())
        raise TaskError(f"{where}: the key 'kind' is missing; expected one of {names}.")
    try:
        return TASKS[str(fields["kind"])]
    except TaskError as error:
        raise TaskError(f"{where}, kind: {error}") from None


def _fields_for(for_data: Any, spec: Any, family: type[Task], where: str) -> dict[str, Any]:
    if not isinstance(for_data, dict) or not all(isinstance(v, dict) for v in for_data.values()):
        raise ConfigError(f"{where}, for_data: expected a mapping from data to fields of the task.")
    for kind in for_data:
        if kind not in family.data_kinds:
            raise ConfigError(
                f"{where}, for_data: found {kind!r}{near(kind, family.data_kinds)}; "
                f"expected one of {', '.join(family.data_kinds)}."
            )
    return dict(for_data.get(str(spec).partition(":")[0], {}))
