"""Conversion of records to JSON text and back."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")
_adapter: Final[Callable[[Any], TypeAdapter[Any]]] = cache(TypeAdapter)
# Fields that are not recorded, by name of the class.
_EXCLUDED: Final[dict[str, Any]] = {
    "Training": {"digest": True, "evaluation": {"weights"}},
    "Generation": {"counts"},
}


def to_json(record: object) -> str:
    """Return a record as JSON text."""
    kind = type(record)
    data = _adapter(kind).dump_python(record, mode="json", exclude=_EXCLUDED.get(kind.__name__))
    return json.dumps(_encodable(data), ensure_ascii=False, allow_nan=False)


def from_json(kind: type[T], text: str) -> T:
    """Return the record that ``to_json`` wrote.

    Raises:
        ValueError, NasError: the text holds no such record. The message is one line.
    """
    try:
        record: T = _adapter(kind).validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{kind.__name__}, {where}: {first['msg']}") from error
    return record


def _encodable(value: Any) -> Any:
    """Return JSON data with infinite numbers and NaN as text, and with escapes for surrogates.

    Surrogates occur in command lines that contain bytes other than UTF-8.
    """
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {name: _encodable(item) for name, item in value.items()}
        case list():
            return [_encodable(item) for item in value]
    return value
