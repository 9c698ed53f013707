"""Write the calls that lowering found: what is multiplied in place of the scores.

    query_0 = self.bilinear_0.map(q)
    query_1 = by_head(query_0, self.temperature_1.factor)
    tokens_3 = dot_product_attention(query_1, k, v, mask)

A score is written as scale * query·key^T + bias, where bias is a column of numbers of the keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nas.compiler.labels import arguments, call_lines, heads_text, operand_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from nas.compiler.lowering import Lowered
    from nas.compiler.plan import Step


@dataclass(frozen=True)
class Features:
    """The expressions that a score is made of, and the lines before them that name some."""

    query: str
    key: str
    scale: str | None = None
    bias: str | None = None
    lines: tuple[str, ...] = ()

    @property
    def scaled_query(self) -> str:
        """The query with the scale in it."""
        return f"{self.query} * {self.scale}" if self.scale else self.query

    @property
    def scaled_key(self) -> str:
        """The key with the scale in it."""
        return f"{self.key} * {self.scale}" if self.scale else self.key


def lowered_call(call: Lowered, keys: list[str] | None, is_causal: bool) -> list[str]:
    """The lines that compute the aggregations of a call.

    Args:
        keys: inside a method, what it calls the tokens that it reads as keys.
        is_causal: say so by word; the mask then does not.
    """
    score, index = _score(call, keys), call.sums[0].index
    values, lines = _values(call, keys)
    key, mask, lines = score.key, "mask", [*score.lines, *lines]
    if call.has_silent_key:
        names = [f"key_{index}", f"values_{index}", f"mask_{index}"]
        lines += call_lines(", ".join(names), "with_silent_key", [key, values, mask])
        key, values, mask = names
    given = [score.query, key, values, mask]
    given += [score.scale] if score.scale else []
    given += ["is_causal=is_causal"] if is_causal else []
    given += [f"bias={score.bias}"] if score.bias else []
    return [*lines, *_results(call, given, keys)]


def _results(call: Lowered, given: list[str], keys: list[str] | None) -> list[str]:
    """The call itself, and its result as the graph reads it."""
    first = call.sums[0]
    if len(call.sums) == 1:
        lines = call_lines(first.variable, "dot_product_attention", given)
        if call.is_folded:
            heads = heads_text(first.heads, "self.heads")
            lines.append(f"{first.variable} = unfold_heads({first.variable}, {heads})")
        return lines
    lines = call_lines(f"sums_{first.index}", "dot_product_attention", given)
    widths = ", ".join(f"{operand_names(step, keys)[1]}.shape[-1]" for step in call.sums)
    target = ", ".join(step.variable for step in call.sums)
    return [*lines, *call_lines(target, f"sums_{first.index}.split", [f"({widths})", "dim=-1"])]


def _values(call: Lowered, keys: list[str] | None) -> tuple[str, list[str]]:
    """The values of the call, and the lines that make them if they are not the graph's own."""
    name = f"values_{call.sums[0].index}"
    if len(call.sums) > 1:
        parts = ", ".join(arguments(step, keys)[1] for step in call.sums)
        return name, call_lines(name, "torch.cat", [f"({parts})", "dim=-1"])
    read = operand_names if call.is_grouped else arguments
    own = read(call.sums[0], keys)[1]
    if not call.is_folded:
        return own, []
    heads = heads_text(call.normaliser.heads, "self.heads")
    return name, call_lines(name, "fold_heads", [own, heads])


def _score(call: Lowered, keys: list[str] | None) -> Features:
    """The score that the call's softmax reads."""
    found: dict[object, Features] = {}
    for step in call.scores:
        name = step.primitive.name
        if name in _CHANGES:
            below = [found[operand.ref] for operand in step.operands]
            found[step.index] = _CHANGES[name](step, *below)
        else:
            query, key = arguments(step, keys)
            if call.is_grouped and step is call.scores[-1]:  # else it is scaled or summed by head
                key = operand_names(step, keys)[1]
            found[step.index] = _PAIRS[name](step, query, key)
    return found[call.scores[-1].index]


def _dot_product(step: Step, query: str, key: str) -> Features:
    return Features(query, key, scale=f"self.scale_{step.index}")


def _bilinear(step: Step, query: str, key: str) -> Features:
    name = f"query_{step.index}"
    return Features(name, key, lines=(f"{name} = self.{step.module}.map({query})",))


def _cosine(step: Step, query: str, key: str) -> Features:
    names = f"query_{step.index}", f"key_{step.index}"
    lines = (
        *call_lines(names[0], "by_head", [f"unit_length({query})", f"self.{step.module}.factor"]),
        f"{names[1]} = unit_length({key})",
    )
    return Features(*names, lines=lines)


def _distance(step: Step, query: str, key: str) -> Features:
    """(query·key - |key|² / 2) / sqrt(r): softmax does not see |query|²."""
    names, scale = (f"query_{step.index}", f"bias_{step.index}"), f"self.scale_{step.index}"
    lines = (
        f"{names[0]} = {query} * {scale}",
        f"{names[1]} = squared_length({key}) * (-0.5 * {scale})",
    )
    return Features(names[0], key, bias=names[1], lines=lines)


def _temperature(step: Step, score: Features) -> Features:
    factor = f"self.{step.module}.factor"
    scaled = f"{factor} * {score.scale}" if score.scale else factor
    query, bias = f"query_{step.index}", None
    lines = call_lines(query, "by_head", [score.query, scaled])
    if score.bias:
        bias = f"bias_{step.index}"
        lines += call_lines(bias, "by_head", [score.bias, factor])
    return Features(query, score.key, bias=bias, lines=(*score.lines, *lines))


def _sum(step: Step, first: Features, second: Features) -> Features:
    """Products with one factor in common are the product of a sum, others of longer features."""
    query, key = f"query_{step.index}", f"key_{step.index}"
    queries, keys = (first.scaled_query, second.scaled_query), (first.key, second.key)
    lines = [*first.lines, *second.lines]
    biases = [bias for bias in (first.bias, second.bias) if bias]
    bias = biases[0] if biases else None
    if len(biases) > 1:
        bias = f"bias_{step.index}"
        lines.append(f"{bias} = {biases[0]} + {biases[1]}")
    if first.key == second.key:
        lines.append(f"{query} = {queries[0]} + {queries[1]}")
        key = first.key
    elif first.query == second.query:
        lines.append(f"{key} = {first.scaled_key} + {second.scaled_key}")
        query = first.query
    else:
        lines += call_lines(query, "torch.cat", [f"({', '.join(queries)})", "dim=-1"])
        lines += call_lines(key, "torch.cat", [f"({', '.join(keys)})", "dim=-1"])
    return Features(query, key, bias=bias, lines=tuple(lines))


# Scores by the primitive's name: of two streams, and of other scores.
_PAIRS: Final[dict[str, Callable[..., Features]]] = {
    "scaled_dot_product": _dot_product,
    "bilinear": _bilinear,
    "cosine": _cosine,
    "distance": _distance,
}
_CHANGES: Final[dict[str, Callable[..., Features]]] = {"temperature": _temperature, "add": _sum}
