"""The base class of the results that functions of the API return, and their conversions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas


class Result:
    """Base class of the immutable results that functions of the API return."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that the command of the same name prints with ``--json``."""
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        return {name: _plain(getattr(self, name)) for name in names}


def _plain(value: Any) -> Any:
    if is_dataclass(value) and hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value


def data_frame(records: Iterable[Mapping[str, Any]]) -> pandas.DataFrame:
    """Return rows as a DataFrame."""
    import pandas

    return pandas.DataFrame([*records])
