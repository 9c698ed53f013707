"""Write scores as products of features: what is multiplied in place of them.

    query_0 = self.bilinear_0.map(q)
    query_1 = by_head(query_0, self.temperature_1.factor)

A score is written as scale * query·key^T + bias, where bias is a column of numbers of the keys; a
cap bends it, and slopes take from it what the distance of query and key costs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from nas.compiler.labels import arguments, call_lines, heads_text, operand_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from nas.compiler.lowering import Lowered
    from nas.compiler.plan import Step


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


def features_of(call: Lowered, keys: list[str] | None) -> Features:
    """The score that the call's normaliser reads."""
    found: dict[object, Features] = {}
    read = operand_names if call.is_grouped and _has_one_key(call) else arguments
    for step in call.scores:
        name = step.primitive.name
        if name in _CHANGES:
            below = [found[operand.ref] for operand in step.operands if operand.ref in found]
            found[step.index] = _CHANGES[name](step, *below)
        elif name == "key_bias":
            score = found[step.operands[0].ref]
            found[step.index] = _key_bias(
                step, score, *(f(step, keys)[1] for f in (read, arguments))
            )
        else:
            query, key = arguments(step, keys)[0], read(step, keys)[1]
            found[step.index] = _PAIRS[name](step, query, key)
    lines = [line for step in call.scores for line in found[step.index].lines]
    return replace(found[call.scores[-1].index], lines=tuple(lines))


def _has_one_key(call: Lowered) -> bool:
    """Whether heads may share keys: one product, and no bias of keys that each head changes."""
    names = [step.primitive.name for step in call.scores]
    is_by_head = "distance" in names and bool({"temperature", "key_bias"} & set(names))
    return sum(name in _PAIRS for name in names) == 1 and not is_by_head


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


def _alibi(step: Step, score: Features) -> Features:
    name = f"slopes_{step.index}"
    line = f"{name} = alibi_slopes({heads_text(step.heads, 'self.heads')}, x)"
    line += f" + {score.slopes}" if score.slopes else ""
    return replace(score, slopes=name, lines=(line,))


def _softcap(step: Step, score: Features) -> Features:
    return replace(score, cap=f"{step.params['cap']!r}", lines=())


def _temperature(step: Step, score: Features) -> Features:
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


def _sum(step: Step, first: Features, second: Features) -> Features:
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
