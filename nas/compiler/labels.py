"""Pieces of Python source: labels of a genome as expressions in ``dim`` and ``heads``; calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nas.types import MODEL

if TYPE_CHECKING:
    from nas.compiler.plan import Operand, Step

# Characters of a statement in a method, so that a line has at most a hundred.
LINE: Final = 92


def heads_text(label: str, whole: str = "heads") -> str:
    """How many heads a label means."""
    if label in ("all", "one"):
        return whole if label == "all" else "1"
    return f'share("{label}", {whole})'


def width_text(label: str | None) -> str:
    """The width of one head that a label means."""
    if label in ("all", MODEL):
        return "dim // heads" if label == "all" else "dim"
    return f'key_width("{label}", dim // heads)'


def times_text(count: str, width: str) -> str:
    """The product of two such expressions."""
    if count == "1":
        return width
    if (count, width) == ("heads", "dim // heads"):
        return "dim"
    return (
        f"{count} * ({width})"
        if "//" in width and not width.startswith("key")
        else (f"{count} * {width}")
    )


def indented(lines: list[str], levels: int = 1) -> list[str]:
    """Lines of source, moved in."""
    return ["    " * levels + line if line else "" for line in lines]


def call_lines(target: str, function: str, arguments: list[str]) -> list[str]:
    """A call, on one line where that is short."""
    line = f"{target} = {function}({', '.join(arguments)})"
    if len(line) <= LINE:
        return [line]
    inner = f"    {', '.join(arguments)}"
    lines = [inner] if len(inner) <= LINE else [f"    {one}," for one in arguments]
    return [f"{target} = {function}(", *lines, ")"]


def arguments(step: Step, keys: list[str] | None) -> list[str]:
    """What a step reads, with as many heads as it has itself.

    Args:
        keys: inside a method, what it calls the tokens that it reads as keys.
    """
    return [
        repeated(name, operand, step)
        for name, operand in zip(operand_names(step, keys), step.operands, strict=True)
    ]


def operand_names(step: Step, keys: list[str] | None) -> list[str]:
    """The names alone."""
    return [
        on_rows(o.variable, keys) if keys and o.port.name == "query" else o.variable
        for o in step.operands
    ]


def on_rows(name: str, keys: list[str]) -> str:
    """A stream that is read as queries and as keys has two names in a method."""
    return f"{name}_rows" if name in keys else name


def repeated(name: str, operand: Operand, step: Step) -> str:
    """An operand's name, with its heads repeated if it has fewer than the step."""
    if not operand.is_repeated:
        return name
    return f"repeat_heads({name}, {heads_text(step.heads, 'self.heads')})"
