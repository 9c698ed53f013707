"""Read YAML and JSON into frozen models; errors name the file, the field and what to change.

A duplicate key is an error.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import typing
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pydantic
import yaml

from nas.common.errors import ConfigError
from nas.common.system import read_limited
from nas.common.text import plural

MAX_BYTES = 4_000_000
MAX_YAML_BYTES = 500_000  # parsing YAML takes fifty times longer than JSON
SUFFIXES = (".yaml", ".yml", ".json")
PACKAGE = Path(__file__).resolve().parents[1]


class Frozen(pydantic.BaseModel):
    """The base class of pydantic models whose instances are immutable and reject unknown keys."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


# The name of a space, policy or task: one line, valid in a path and in a message.
Name = Annotated[str, pydantic.StringConstraints(pattern=r"^\w[\w .+-]*$", max_length=80)]

M = TypeVar("M", bound=pydantic.BaseModel)


def read_document(path: Path) -> Any:
    """Return the plain data of a YAML or JSON file, or raise ConfigError."""
    most = MAX_BYTES if path.suffix == ".json" else MAX_YAML_BYTES
    try:
        text = read_limited(path, most).decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is binary; expected YAML or JSON text in UTF-8.") from None
    if not text.strip():
        raise ConfigError(f"{path}: is empty.")
    return parse_json(text, str(path)) if path.suffix == ".json" else parse_yaml(text, str(path))


def read_model(path: Path, model: type[M]) -> M:
    """Return a YAML or JSON file as an instance of ``model``, or raise ConfigError."""
    return parse_model(read_document(path), model, str(path))


def parse_model(data: Any, model: type[M], where: str) -> M:
    """Return plain data as an instance of ``model``, or raise ConfigError.

    The message names the source ``where``, the field, the value, and what was expected.
    """
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: found {describe(data)}; expected a mapping of keys to values.")
    try:
        return model.model_validate(data)
    except pydantic.ValidationError as error:
        raise ConfigError(_sentence(error, model, where)) from None


def parse_json(text: str, where: str) -> Any:
    """Return the plain data of a JSON text, or raise a ConfigError that names the source."""
    with _naming(where):
        return json.loads(text, object_pairs_hook=_unique_keys)


def parse_yaml(text: str, where: str) -> Any:
    """Return the plain data of a YAML text, or raise a ConfigError that names the source."""
    with _naming(where):
        return yaml.load(text, Loader=_PlainLoader)  # noqa: S506 - a SafeLoader, made stricter


def dump_yaml(data: Any) -> str:
    """Return plain data as YAML text; keys keep their order."""
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)


def near(word: object, words: Iterable[str]) -> str:
    """Return a hint such as `` (did you mean 'softmax'?)`` if a known word is similar; else ""."""
    matches = difflib.get_close_matches(str(word), list(words), n=1, cutoff=0.6)
    return f" (did you mean {matches[0]!r}?)" if matches else ""


def find_named(name: str, folder: str) -> Path:
    """Return the path of a file that a user has named.

    ``name`` is a path; or the name of a file, without suffix, in a folder such as "search_spaces"
    of the current directory or of this package. ConfigError lists the names if there is no such.
    """
    file = name if name.endswith(SUFFIXES) else f"{name}.yaml"
    for path in (Path(name), *(place / file for place in _folders(folder))):
        if path.suffix in SUFFIXES and os.path.isfile(path):
            return path
    if Path(name).suffix in SUFFIXES and len(Path(name).parts) > 1:
        raise ConfigError(f"{name}: there is no such file.")
    names = named_files(folder)
    raise ConfigError(
        f"{name!r} is neither a file nor one of {folder}: "
        f"{', '.join(names) or 'none'}{near(name, names)}."
    )


def named_files(folder: str) -> list[str]:
    """Return the sorted names of files that ``find_named`` accepts for a folder."""
    return sorted({path.stem for place in _folders(folder) for path in place.glob("*.yaml")})


def describe(value: Any) -> str:
    """Return the type and the shortened value of any object, for an error message."""
    return "nothing" if value is None else shortened(f"{type(value).__name__} {value!r}")


def shortened(text: str) -> str:
    """Return a text, cut to 80 characters."""
    return text if len(text) <= 80 else text[:77] + "..."


class _PlainLoader(yaml.SafeLoader):
    """A SafeLoader that rejects duplicate keys."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        mapping = super().construct_mapping(node, deep=deep)
        if (key := _duplicate(key.value for key, _ in node.value)) is not None:
            problem = f"the key {shortened(key)!r} stands twice"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return mapping


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if (key := _duplicate(key for key, _ in pairs)) is not None:
        raise ValueError(f"the key {shortened(key)!r} stands twice.")
    return dict(pairs)


def _duplicate(keys: Iterable[str]) -> str | None:
    return next((key for key, number in Counter(keys).items() if number > 1), None)


@contextlib.contextmanager
def _naming(where: str) -> Iterator[None]:
    """Turn the errors of a parser in a block into a ConfigError that names the source ``where``."""
    try:
        yield
    except json.JSONDecodeError as error:
        line = f", line {error.lineno}, column {error.colno}"
        raise ConfigError(f"{where}{line}: not JSON: {error.msg}.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        raise ConfigError(f"{where}{line}: not YAML: {' '.join(str(problem).split())}.") from None
    except RecursionError:
        raise ConfigError(f"{where}: is nested too deep; expected fewer levels.") from None
    except ValueError as error:
        raise ConfigError(f"{where}: {str(error).rstrip('.')}.") from None


def _folders(folder: str) -> list[Path]:
    packaged = PACKAGE / "_data" / folder
    return [Path(folder), packaged if packaged.is_dir() else PACKAGE.parent / folder]


# Error types of pydantic, for models and typed dictionaries, and for dataclasses.
_UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")
# What was expected, in the words of YAML and JSON, by error type of pydantic.
_EXPECTED = {
    **dict.fromkeys(("tuple_type", "list_type"), "a list"),
    **dict.fromkeys(("dict_type", "model_type", "dataclass_type"), "a mapping of keys to values"),
}


def _sentence(error: pydantic.ValidationError, model: type[pydantic.BaseModel], where: str) -> str:
    """Return an error message: a sentence on the first fault, and the number of other faults."""
    details: list[Any] = error.errors(include_url=False)
    # A list with an invalid item is also reported as too short.
    details = [detail for detail in details if detail["type"] != "too_short"] or details
    # A misspelt key is also reported as missing; the message names the misspelling.
    first = next((detail for detail in details if detail["type"] in _UNKNOWN_KEY), details[0])
    place = shortened(".".join(map(str, first["loc"]))) or "the document"
    more = f" ({plural(len(details) - 1, 'more mistake')}.)" if len(details) > 1 else ""
    if first["type"] == "missing":
        return f"{where}: the key {place!r} is missing.{more}"
    return f"{where}, {place}: {_fault(first, model)}.{more}"


def _fault(detail: Any, model: type[pydantic.BaseModel]) -> str:
    """Return what is wrong with a value or key, in the words of pydantic where they are plain."""
    if detail["type"] in _UNKNOWN_KEY:
        key, known = str(detail["loc"][-1]), _fields(model, detail["loc"][:-1])
        expected = f"; expected one of {', '.join(known)}" if known else ""
        return f"unknown key {shortened(key)!r}{expected}{near(key, known)}"
    reason = str(detail["msg"]).removeprefix("Value error, ").replace("Input should be", "expected")
    reason = reason.rstrip(".")
    if detail["type"] == "value_error":
        return reason
    if detail["type"] in _EXPECTED:
        reason = f"expected {_EXPECTED[detail['type']]}"
    return f"found {describe(detail['input'])}; {reason[:1].lower()}{reason[1:]}"


def _fields(model: type[pydantic.BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """Return the keys of the pydantic model at ``loc`` inside ``model``; [] without a model."""
    current: Any = model
    for part in loc:
        if isinstance(part, int):
            current = next(iter(typing.get_args(current)), None)
        else:
            field = getattr(current, "model_fields", {}).get(part)
            current = getattr(field, "annotation", None)
        current = current.__origin__ if hasattr(current, "__metadata__") else current
    fields = getattr(current, "model_fields", None) or getattr(current, "__annotations__", {})
    return sorted(getattr(field, "alias", None) or name for name, field in fields.items())
