"""Write parts of Python source: expressions for labels of sizes, calls, and broken lines.

A label is a name of a head count or width in a genome, such as "all", "one" or "1/2". The
expression for a label contains the variables ``dim`` and ``heads``.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final

from nas.genome.types import MODEL

if TYPE_CHECKING:
    from nas.compiler.plan import Step

LINE: Final = 100  # most characters of a line


def heads_text(label: str, whole: str = "heads") -> str:
    """Return the expression for a head count, where ``whole`` is the number of all heads."""
    if label in ("all", "one"):
        return whole if label == "all" else "1"
    return f'head_count("{label}", {whole})'


def width_text(label: str | None) -> str:
    """Return the expression for a width."""
    if label in ("all", MODEL):
        return "dim // heads" if label == "all" else "dim"
    return "key_width"


def key_width_text(label: str) -> str:
    """Return the expression for a fraction of the head width as an even number of at least 2."""
    top, bottom = label.split("/")
    whole = "dim // heads" if top == "1" else f"{top} * (dim // heads)"
    return f"min(dim // heads, max(2, 2 * round({whole} / {2 * int(bottom)})))"


def share_lines(name: str, label: str) -> list[str]:
    """Return statements that set the variable ``name`` to a fraction of the heads.

    A fraction below one head becomes one head. The statements raise ValueError if the fraction is
    above one head and not a whole number.
    """
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
    """Return the expression for the product of a number of heads and a width."""
    if count == "1":
        return width
    if (count, width) == ("heads", "dim // heads"):
        return "dim"
    return f"{count} * ({width})" if width == "dim // heads" else f"{count} * {width}"


def size_texts(step: Step, heads: str, bias: str) -> dict[str, str]:
    """Return expressions for the sizes that a step's module may take, by name of the argument."""
    texts = {"dim": "dim", "heads": heads, "bias": bias}
    if step.width is not None:
        texts["width"], texts["rank"] = width_text(step.width), width_text(step.rank)
    return texts | ({"filtered": "True"} if step.is_filtered else {})


def call_line(target: str, function: str, arguments: list[str]) -> str:
    """Return the statement that assigns the result of a call to ``target``."""
    return f"{target} = {function}({', '.join(arguments)})"


def indented(lines: list[str], levels: int = 1) -> list[str]:
    """Return indented lines of source; long lines are broken inside their first brackets."""
    return [part for line in lines for part in wrapped(line, "    " * levels)]


def wrapped(text: str, pad: str) -> list[str]:
    """Return a statement, indented by ``pad`` and broken inside its first brackets if long."""
    text, pad = text.lstrip(), pad + " " * (len(text) - len(text.lstrip()))
    if len(pad + text) <= LINE or "(" not in text:
        return [(pad + text).rstrip()]
    start = text.index("(") + 1
    depths = list(accumulate((sign in "([{") - (sign in ")]}") for sign in text))
    stop = depths.index(0, start)
    commas = [i for i in range(start, stop) if text[i] == "," and depths[i] == 1]
    parts = [text[i + 1 : j].strip() for i, j in pairwise([start - 1, *commas, stop])]
    inner = f"{pad}    {', '.join(parts)}"
    lines = [inner] if len(inner) <= LINE else [f"{pad}    {part}," for part in parts]
    return [pad + text[:start], *lines, pad + text[stop:]]
