"""Hostile values, and random mutations of plain data, texts and bytes."""

from __future__ import annotations

import copy
import json
from typing import Any, Final, TypeAlias

import numpy as np
import yaml  # noqa: TID251 - to write hostile documents

Rng: TypeAlias = np.random.Generator

MARK: Final = "pwned"  # part of all injected code, markup and paths
DEEP: Final = "@deep@"  # replaced by deeply nested brackets
TEXTS: Final = (
    "",
    " ",
    "\0",
    "\x1b]0;pwned\x07\x1b[2J\x1b[31m",
    "\u202egnp.exe\u2066",
    "\ud800",
    "\x9b2J\r\n\t",
    "ﷺ" * 50,
    "e\u0301" * 40,
    "x" * 300,
    "y" * 20_000,
    "../../pwned",
    "/tmp/pwned",
    "~pwned/x",
    "a/../../pwned.json",
    "__import__('os').mkdir('pwned')",
    '"""\n__import__("os").mkdir("pwned")\n"""',
    "${pwned}{0.__class__}%s%n",
    "$(mkdir pwned)",
    "'; DROP TABLE run; --",
    "</script><script>pwned()</script>",
    '"><img src=x onerror=pwned()>',
    "<pwned>",
    "NaN",
    "1e999",
    "0x1F",
    "1:30",
    "2026-11-22",
    "null",
    "true",
    "latest/best",
    "mha",
    "q",
    DEEP,
)
NUMBERS: Final = (
    0, -1, 1, 2, 3, 17, 255, 256, 10_000, 10**6, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30,
    10**400, -(2**63), 0.0, -0.0, 0.5, 0.999999, 1e-9, 5e-324, 1e16, 1e308, -1e308, float("nan"),
    float("inf"), float("-inf"),
)  # fmt: skip
OTHERS: Final = (None, True, False, [], {}, [[]], {"": {}}, [None] * 3)


def hostile(rng: Rng) -> Any:
    """Return a random hostile value."""
    kinds = (TEXTS, TEXTS, NUMBERS, NUMBERS, OTHERS)
    kind = kinds[rng.integers(len(kinds))]
    if rng.random() < 0.02:
        return [kind[rng.integers(len(kind))]] * int(rng.integers(2_000))
    return copy.deepcopy(kind[rng.integers(len(kind))])


def mutate(data: Any, rng: Rng) -> Any:
    """Return a copy of plain data with changed values, keys or branches."""
    data = copy.deepcopy(data)
    for _ in range(rng.geometric(0.6)):
        data = _changed(data, rng)
    return data


def _changed(data: Any, rng: Rng) -> Any:
    places = list(_places(data))
    if not places or rng.random() < 0.02:
        return hostile(rng)
    holder, key = places[rng.integers(len(places))]
    other, name = places[rng.integers(len(places))]
    match rng.integers(8):
        case 0 | 1 | 2:
            holder[key] = hostile(rng)
        case 3:
            holder[key] = copy.deepcopy(other[name])
        case 4:
            del holder[key]
        case 5:
            holder[key] = nudge(holder[key], rng)
        case 6 if isinstance(holder, dict):
            holder[str(hostile(rng))] = holder.pop(key)
        case 6:
            holder.extend(copy.deepcopy([holder[key]]) * int(rng.integers(1, 400)))
        case 7:
            holder[key] = [holder[key]] if rng.random() < 0.5 else {MARK: holder[key]}
    return data


def _places(data: Any) -> Any:
    """Yield (container, key) of each item in nested data."""
    waiting = [data]
    while waiting:
        holder = waiting.pop()
        if not isinstance(holder, dict | list):
            continue
        for key in holder if isinstance(holder, dict) else range(len(holder)):
            yield holder, key
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])


def nudge(value: Any, rng: Rng) -> Any:
    """Return a similar value."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return [value + 1, -value, value * 1000, value // 3, f"{rng.integers(99)}"][rng.integers(5)]
    if isinstance(value, str):
        return edit_text(value, rng)
    return str(value)


def edit_text(text: str, rng: Rng) -> str:
    """Return the text with parts removed, repeated or inserted."""
    for _ in range(1 + rng.geometric(0.5)):
        a, b = sorted(rng.integers(0, len(text) + 1, 2))
        piece = str(hostile(rng)) if rng.random() < 0.7 else text[a:b] * int(rng.integers(1, 50))
        text = text[:a] + (piece if rng.random() < 0.7 else "") + text[min(b, a + 3) :]
    return text[:200_000]


def edit_bytes(content: bytes, rng: Rng) -> bytes:
    """Return the bytes with bits flipped, parts removed or inserted."""
    result = bytearray(content)
    for _ in range(1 + rng.geometric(0.3)):
        at = int(rng.integers(len(result) + 1))
        match rng.integers(4):
            case 0 if result:
                result[min(at, len(result) - 1)] ^= 1 << int(rng.integers(8))
            case 1 if rng.random() < 0.3:
                del result[at:]
            case 2:
                result[at:at] = rng.bytes(int(rng.integers(1, 64)))
            case _:
                result[at : at + 8] = b"\xff" * 8
    return bytes(result)


def serialise(data: Any, rng: Rng, *, is_yaml: bool) -> bytes:
    """Return data as the bytes of a JSON or YAML document, mostly well-formed."""
    text = _yaml(data) if is_yaml else json.dumps(data, indent=1)
    depth = int(rng.choice([3, 100, 20_000]))
    text = text.replace(DEEP, "[" * depth + "]" * depth)
    if rng.random() < 0.1:
        text = _hostile_syntax(text, rng)
    content = text.encode("utf-8", "surrogatepass")
    return edit_bytes(content, rng) if rng.random() < 0.05 else content


def _yaml(data: Any) -> str:
    """Return data as YAML, or as JSON if YAML cannot represent it."""
    try:
        return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    except (yaml.YAMLError, UnicodeError, ValueError):
        return json.dumps(data)


def _hostile_syntax(text: str, rng: Rng) -> str:
    lines = text.splitlines() or [""]
    at = int(rng.integers(len(lines)))
    bomb = ["a0: &a0 [x, x]"] + [
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)
    ]
    extra: list[list[str]] = [
        [lines[at]],  # a duplicate key
        bomb,
        [f"{MARK}: !!python/object/apply:os.mkdir [{MARK}]"],
        [f"{MARK}: !!binary gIAB"],
        ["<<: {name: x}"],
        ["? [a, b]\n: c"],
        ["--- another"],
        ["\t\x0b"],
        ["name: *x"],
        ['{"name": 1, "name": 2}'],
        ["- " * 3000],
        ["[" * 5000],
        ["{a: " * 5000],
        [f"k: {'9' * 5000}"],
        ["k: 1e99999"],
        ["k: .inf"],
    ]
    lines[at:at] = extra[rng.integers(len(extra))]
    return "\n".join(lines)
