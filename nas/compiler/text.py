"""Pieces of Python source: labels of a genome as expressions in ``dim`` and ``heads``; calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nas.genome.types import MODEL

if TYPE_CHECKING:
    from nas.compiler.plan import Step

# Characters of a statement in a method, so that a line has at most a hundred.
LINE: Final = 92


def heads_text(label: str, whole: str = "heads") -> str:
    """How many heads a label means."""
    if label in ("all", "one"):
        return whole if label == "all" else "1"
    return f'head_count("{label}", {whole})'


def width_text(label: str | None) -> str:
    """The width of one head that a label means."""
    if label in ("all", MODEL):
        return "dim // heads" if label == "all" else "dim"
    return "key_width"


def key_width_text(label: str) -> str:
    """The key width that a fraction of the head width means: even, and at least two."""
    top, bottom = label.split("/")
    whole = "dim // heads" if top == "1" else f"{top} * (dim // heads)"
    return f"min(dim // heads, max(2, 2 * round({whole} / {2 * int(bottom)})))"


def share_lines(name: str, label: str) -> list[str]:
    """Statements that set ``name`` to a share of the heads, one at least."""
    if label in ("all", "one"):
        return [f"{name} = {heads_text(label)}"]
    top, bottom = label.split("/")
    whole = "heads" if top == "1" else f"{top} * heads"
    words = f"{label} of {{heads}} heads is no whole number; expected heads that divide"
    return [
        f"if {whole} > {bottom} and {whole} % {bottom}:",
        f'    raise ValueError(f"{words}")',
        f"{name} = max(1, {whole} // {bottom})",
    ]


def times_text(count: str, width: str) -> str:
    """The product of two such expressions."""
    if count == "1":
        return width
    if (count, width) == ("heads", "dim // heads"):
        return "dim"
    return f"{count} * ({width})" if width == "dim // heads" else f"{count} * {width}"


def size_texts(step: Step, heads: str, bias: str) -> dict[str, str]:
    """Expressions for the sizes that a step's module may ask for."""
    texts = {"dim": "dim", "heads": heads, "bias": bias}
    if step.width is not None:
        texts["width"], texts["rank"] = width_text(step.width), width_text(step.rank)
    return texts | ({"filtered": "True"} if step.is_filtered else {})


def indented(lines: list[str], levels: int = 1) -> list[str]:
    """Lines of source, moved in."""
    return ["    " * levels + line if line else "" for line in lines]


def call_lines(target: str, function: str, arguments: list[str]) -> list[str]:
    """A call, on one line where that is short."""
    line = f"{target} = {function}({', '.join(arguments)})"
    if len(line) <= LINE:
        return [line]
    inner = f"    {', '.join(arguments)}"
    lines = [inner] if len(inner) <= LINE else [f"    {argument}," for argument in arguments]
    return [f"{target} = {function}(", *lines, ")"]
