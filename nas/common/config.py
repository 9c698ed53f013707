"""Read YAML and JSON into frozen models; errors name the file, the field and what to change.

No other module imports yaml. Documents are plain data without tags, aliases, duplicate keys or
NaN, so that a file can neither run code nor expand to more data than its text.
"""

from __future__ import annotations

import difflib
import json
import stat
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pydantic
import yaml

from nas.common.errors import ConfigError

MAX_BYTES = 4_000_000
MAX_YAML_BYTES = 500_000  # parsing YAML takes fifty times longer than JSON
MAX_DEPTH = 64
MAX_WORD = 100  # longest word, in characters, for which similar words are suggested
SUFFIXES = (".yaml", ".yml", ".json")
PACKAGE = Path(__file__).resolve().parents[1]


class Frozen(pydantic.BaseModel):
    """A model whose instances never change and whose unknown keys are errors."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=False)


# The name of a space, policy or task: one line, valid in a path and in a message.
Name = Annotated[str, pydantic.StringConstraints(pattern=r"^\w[\w .+-]*$", max_length=80)]

M = TypeVar("M", bound=pydantic.BaseModel)


def read_document(path: Path) -> Any:
    """Read the plain data of a YAML or JSON file.

    Raises:
        ConfigError: the file is missing, empty, binary, malformed or nested too deep.
    """
    text = _read_text(path)
    return parse_json(text, str(path)) if path.suffix == ".json" else parse_yaml(text, str(path))


def read_model(path: Path, model: type[M]) -> M:
    """Read a file into a frozen model; see ``read_document`` and ``parse_model``."""
    return parse_model(read_document(path), model, str(path))


def parse_model(data: Any, model: type[M], where: str) -> M:
    """Turn plain data into a model.

    Raises:
        ConfigError: names the place, the field, what was found and what was expected.
    """
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: found {describe(data)}; expected a mapping of keys to values.")
    try:
        return model.model_validate(data)
    except pydantic.ValidationError as error:
        raise ConfigError(_sentence(error, model, where)) from None


def parse_json(text: str, where: str) -> Any:
    """Parse JSON text; malformed text, duplicate keys and NaN raise ConfigError."""
    try:
        data = json.loads(
            text, object_pairs_hook=_unique_keys, parse_constant=_no_constant, parse_int=_short_int
        )
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{where}, line {error.lineno}, column {error.colno}: not JSON: {error.msg}."
        ) from None
    except (RecursionError, ValueError) as error:
        raise _unread(error, where) from None
    return _bounded(data, where)


def parse_yaml(text: str, where: str) -> Any:
    """Parse YAML text; malformed text, aliases, tags and duplicate keys raise ConfigError."""
    try:
        data = yaml.load(text, Loader=_PlainLoader)  # noqa: S506 - a SafeLoader, made stricter
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}{_mark(error)}: not YAML: {_problem(error)}.") from None
    except (RecursionError, ValueError) as error:
        raise _unread(error, where) from None
    return _bounded(data, where)


def dump_yaml(data: Any) -> str:
    """Write plain data as YAML text; keys keep their order."""
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)


def near(word: object, words: Iterable[str]) -> str:
    """Return a hint such as `` (did you mean 'softmax'?)``, or an empty string."""
    text = str(word)
    if len(text) > MAX_WORD:  # the comparison is slow for long words
        return ""
    matches = difflib.get_close_matches(text, list(words), n=1, cutoff=0.6)
    return f" (did you mean {matches[0]!r}?)" if matches else ""


def find_named(name: str, folder: str) -> Path:
    """Find a named file: as a path, then in ./``folder``, then among the packaged files.

    Raises:
        ConfigError: no such file exists; the message lists the names that do.
    """
    places = _folders(folder)
    file = name if name.endswith(SUFFIXES) else f"{name}.yaml"
    candidates = [Path(name), *(place / file for place in places)]
    for path in candidates:
        if path.suffix in SUFFIXES and _is_file(path):
            return path
    names = named_files(folder)
    if Path(name).suffix in SUFFIXES and len(Path(name).parts) > 1:
        raise ConfigError(f"{name}: there is no such file.")
    raise ConfigError(
        f"{name!r} is neither a file nor one of {folder}: "
        f"{', '.join(names) or 'none'}{near(name, names)}."
    )


def named_files(folder: str) -> list[str]:
    """The names that ``find_named`` finds in a folder, sorted."""
    return sorted({path.stem for place in _folders(folder) for path in place.glob("*.yaml")})


def describe(value: Any) -> str:
    """The type and the shortened text of a value, for an error message."""
    # Python refuses to print integers of thousands of digits.
    is_huge = isinstance(value, int) and value.bit_length() > 256
    text = f"a number of {value.bit_length()} bits" if is_huge else repr(value)
    return shortened("nothing" if value is None else f"{type(value).__name__} {text}")


def shortened(text: str) -> str:
    """The first 80 characters of a text, with control characters escaped."""
    text = text if len(text) <= 80 else text[:77] + "..."
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


class _PlainLoader(yaml.SafeLoader):
    """A SafeLoader without aliases, tags, dates or duplicate keys."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise self._refused("aliases are not allowed here")
        tag = getattr(self.peek_event(), "tag", None)  # type: ignore[no-untyped-call]
        if tag is not None:
            raise self._refused(f"the tag {tag!r} is not allowed")
        return super().compose_node(parent, index)

    def _refused(self, problem: str) -> yaml.YAMLError:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        return yaml.composer.ComposerError(None, None, problem, mark)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = set()
        for key_node, _ in node.value:
            key = key_node.value
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key must be plain text", key_node.start_mark
                )
            if key in keys:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {shortened(key)!r} stands twice", key_node.start_mark
                )
            keys.add(key)
        return super().construct_mapping(node, deep=deep)


def _yaml_int(loader: _PlainLoader, node: yaml.ScalarNode) -> int:
    """Read a whole number as JSON does; 0x1F and 1:30 are errors."""
    if not node.value.lstrip("+-").isdigit():
        problem = f"{node.value[:40]!r} is no number"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
    return _short_int(node.value)


_PlainLoader.add_constructor("tag:yaml.org,2002:int", _yaml_int)

# A name such as 2025-11-20 stays text; no field is a date.
_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _read_text(path: Path) -> str:
    raw = _read_bytes(path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ConfigError(f"{path}: is binary; expected YAML or JSON text in UTF-8.")
    if not text.strip():
        raise ConfigError(f"{path}: is empty.")
    return text


def _read_bytes(path: Path) -> bytes:
    most = MAX_BYTES if path.suffix == ".json" else MAX_YAML_BYTES
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise ConfigError(f"{path}: is a folder; expected a YAML or JSON file.")
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{path}: is no regular file; expected a YAML or JSON file.")
        if status.st_size > most:
            raise ConfigError(f"{path}: has {status.st_size} bytes; expected at most {most}.")
        return path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file.") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}).") from None
    except ValueError:
        raise ConfigError(f"{str(path)!r} is no path.") from None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _folders(folder: str) -> list[Path]:
    packaged = PACKAGE / "_data" / folder
    return [Path(folder), packaged if packaged.is_dir() else PACKAGE.parent / folder]


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"the key {shortened(key)!r} stands twice.")
        result[key] = value
    return result


def _no_constant(name: str) -> Any:
    raise ValueError(f"found {name}; expected a finite number.")


def _short_int(digits: str) -> int:
    if len(digits) > 19:
        raise ValueError(f"found a number of {len(digits)} digits; expected at most 18.")
    return int(digits)


def _bounded(data: Any, where: str) -> Any:
    """Return data of at most MAX_DEPTH levels; deeper data raise ConfigError."""
    level: Sequence[Any] = [data]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for value in level
            if isinstance(value, dict | list)
            for child in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return data
    raise _unread(RecursionError(), where)


def _unread(error: Exception, where: str) -> ConfigError:
    deep = f"is nested too deep; expected at most {MAX_DEPTH} levels."
    return ConfigError(f"{where}: {deep if isinstance(error, RecursionError) else error}")


def _mark(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""


def _problem(error: yaml.YAMLError) -> str:
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    return " ".join(str(problem).split())


def _sentence(error: pydantic.ValidationError, model: type[pydantic.BaseModel], where: str) -> str:
    details = error.errors(include_url=False)
    # A misspelt key is also reported as missing; the message names the misspelling.
    first = next((d for d in details if d["type"] == "extra_forbidden"), details[0])
    place = shortened(".".join(str(part) for part in first["loc"])) or "the document"
    more = f" ({len(details) - 1} more like this.)" if len(details) > 1 else ""
    if first["type"] == "extra_forbidden":
        key, expected_keys = shortened(str(first["loc"][-1])), _fields(model, first["loc"][:-1])
        expected = f"; expected one of {', '.join(expected_keys)}" if expected_keys else ""
        return f"{where}, {place}: unknown key {key!r}{expected}{near(key, expected_keys)}.{more}"
    if first["type"] == "missing":
        return f"{where}: the key {place!r} is missing.{more}"
    reason = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":
        return f"{where}, {place}: {reason.rstrip('.')}.{more}"
    return f"{where}, {place}: found {describe(first['input'])}; {_lower(reason)}.{more}"


def _lower(reason: str) -> str:
    reason = reason.replace("Input should be", "expected")
    return reason[:1].lower() + reason[1:]


def _fields(model: type[pydantic.BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """The keys of the model at ``loc``, for hints; empty if ``loc`` holds no model."""
    current: Any = model
    for part in loc:
        if isinstance(part, int):
            current = next(iter(typing.get_args(current)), None)
        else:
            field = getattr(current, "model_fields", {}).get(part)
            current = getattr(field, "annotation", None)
    return sorted(f.alias or name for name, f in getattr(current, "model_fields", {}).items())
