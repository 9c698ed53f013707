"""Write scores as products of features: what is multiplied in place of them.

    query_0 = self.bilinear_0.map(q)
    query_1 = by_head(query_0, self.temperature_1.factor)

A score is written as scale * query·key^T + bias, where bias is a column of numbers of the keys; a
cap bends it, and slopes take from it what the distance of query and key costs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from nas.compiler.text import call_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from nas.compiler.lowering import Lowered
    from nas.compiler.plan import Step
    from nas.compiler.source import Source


@dataclass(frozen=True)
class Features:
    """The expressions that a score is made of, and the lines of its own that name some.

    Attributes:
        slopes: what each head takes from its scores for a step of distance in the text.
        cap: the bound that products, scale and bias are bent into.
    """

    query: str
    key: str
    scale: str | None = None
    bias: str | None = None
    slopes: str | None = None
    cap: str | None = None
    lines: tuple[str, ...] = ()

    @property
    def scaled_query(self) -> str:
        """The query with the scale in it."""
        return f"{self.query} * {self.scale}" if self.scale else self.query

    @property
    def scaled_key(self) -> str:
        """The key with the scale in it."""
        return f"{self.key} * {self.scale}" if self.scale else self.key


def features_of(source: Source, call: Lowered) -> Features:
    """The score that the call's normaliser reads."""
    found: dict[object, Features] = {}
    # Longer features, of several products, need as many heads of each.
    is_one_product = sum(step.primitive.name in _PAIRS for step in call.scores) == 1
    read = source.names if call.is_grouped and is_one_product else source.arguments
    for step in call.scores:
        name = step.primitive.name
        below = [found[operand.ref] for operand in step.operands if operand.ref in found]
        if name == "key_bias":
            shared, own = read(step)[1], source.arguments(step)[1]
            found[step.index] = _key_bias(step, below[0], shared, own)
        elif below:
            found[step.index] = _CHANGES[name](source, step, *below)
        else:
            query, key = source.arguments(step)[0], read(step)[1]
            found[step.index] = _PAIRS[name](source, step, query, key)
    lines = [line for step in call.scores for line in found[step.index].lines]
    return replace(found[call.scores[-1].index], lines=tuple(lines))


def _dot_product(source: Source, step: Step, query: str, key: str) -> Features:
    return Features(query, key, scale=source.scale(step))


def _bilinear(source: Source, step: Step, query: str, key: str) -> Features:
    name = f"query_{step.index}"
    return Features(name, key, lines=(f"{name} = self.{step.module}.map({query})",))


def _cosine(source: Source, step: Step, query: str, key: str) -> Features:
    names = f"query_{step.index}", f"key_{step.index}"
    lines = (
        *call_lines(names[0], "by_head", [f"unit_length({query})", f"self.{step.module}.factor"]),
        f"{names[1]} = unit_length({key})",
    )
    return Features(*names, lines=lines)


def _distance(source: Source, step: Step, query: str, key: str) -> Features:
    """(query·key - |key|² / 2) / sqrt(r): softmax does not see |query|²."""
    names, scale = (f"query_{step.index}", f"bias_{step.index}"), source.scale(step)
    lines = (
        f"{names[0]} = {query} * {scale}",
        f"{names[1]} = squared_length({key}) * (-0.5 * {scale})",
    )
    return Features(names[0], key, bias=names[1], lines=lines)


def _key_bias(step: Step, score: Features, shared: str, own: str) -> Features:
    """(query + u)·key where that is the score's key; else what each key adds."""
    name = f"self.{step.module}"
    if score.key == shared:
        query = f"query_{step.index}"
        lines = call_lines(query, f"{name}.shifted", [score.scaled_query])
        return replace(score, query=query, scale=None, lines=tuple(lines))
    bias = f"bias_{step.index}"
    line = f"{bias} = {name}.of({own})" + (f" + {score.bias}" if score.bias else "")
    return replace(score, bias=bias, lines=(line,))


def _alibi(source: Source, step: Step, score: Features) -> Features:
    name = f"slopes_{step.index}"
    line = f"{name} = alibi_slopes({source.heads[step.heads]}, x)"
    line += f" + {score.slopes}" if score.slopes else ""
    return replace(score, slopes=name, lines=(line,))


def _softcap(source: Source, step: Step, score: Features) -> Features:
    return replace(score, cap=f"{step.params['cap']!r}", lines=())


def _temperature(source: Source, step: Step, score: Features) -> Features:
    factor = f"self.{step.module}.factor"
    scaled = f"{factor} * {score.scale}" if score.scale else factor
    query, bias, slopes = f"query_{step.index}", None, None
    lines = call_lines(query, "by_head", [score.query, scaled])
    if score.bias:
        bias = f"bias_{step.index}"
        lines += call_lines(bias, "by_head", [score.bias, factor])
    if score.slopes:
        slopes = f"slopes_{step.index}"
        lines.append(f"{slopes} = {score.slopes} * {factor}")
    return Features(query, score.key, bias=bias, slopes=slopes, lines=tuple(lines))


def _sum(source: Source, step: Step, first: Features, second: Features) -> Features:
    """Products with one factor in common are the product of a sum, others of longer features."""
    query, key = f"query_{step.index}", f"key_{step.index}"
    queries, keys = (first.scaled_query, second.scaled_query), (first.key, second.key)
    lines: list[str] = []
    bias = _added("bias", step, first.bias, second.bias, lines)
    slopes = _added("slopes", step, first.slopes, second.slopes, lines)
    if first.key == second.key:
        lines.append(f"{query} = {queries[0]} + {queries[1]}")
        key = first.key
    elif first.query == second.query:
        lines.append(f"{key} = {first.scaled_key} + {second.scaled_key}")
        query = first.query
    else:
        lines += call_lines(query, "torch.cat", [f"({', '.join(queries)})", "dim=-1"])
        lines += call_lines(key, "torch.cat", [f"({', '.join(keys)})", "dim=-1"])
    return Features(query, key, bias=bias, slopes=slopes, lines=tuple(lines))


def _added(
    name: str, step: Step, first: str | None, second: str | None, lines: list[str]
) -> str | None:
    """The sum of what two scores may have each; where both do, a line names it."""
    if first is None or second is None:
        return first or second
    lines.append(f"{name}_{step.index} = {first} + {second}")
    return f"{name}_{step.index}"


# Scores by the primitive's name: of two streams, and of other scores.
_PAIRS: Final[dict[str, Callable[..., Features]]] = {
    "scaled_dot_product": _dot_product,
    "bilinear": _bilinear,
    "cosine": _cosine,
    "distance": _distance,
}
_CHANGES: Final[dict[str, Callable[..., Features]]] = {
    "temperature": _temperature,
    "add": _sum,
    "alibi": _alibi,
    "softcap": _softcap,
}
