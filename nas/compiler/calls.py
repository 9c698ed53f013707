"""Write the calls that lowering found.

query_1 = by_head(q, self.temperature_1.factor * self.scale_0)
tokens_3 = dot_product_attention(query_1, k, v, mask)
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nas.compiler.features import features_of
from nas.compiler.labels import arguments, call_lines, heads_text, operand_names, repeated

if TYPE_CHECKING:
    from nas.compiler.features import Features
    from nas.compiler.lowering import Lowered


def lowered_call(call: Lowered, keys: list[str] | None, is_causal: bool) -> list[str]:
    """The lines that compute the aggregations of a call.

    Args:
        keys: inside a method, what it calls the tokens that it reads as keys.
        is_causal: say so by word; the mask then does not.
    """
    word = ["is_causal=is_causal"] if is_causal else []
    if not call.scores:
        return _mean(call, keys, word)
    if call.scores_pairs:
        return _pairs(call, keys)
    score, index = features_of(call, keys), call.sums[0].index
    values, lines = _values(call, keys)
    key, mask, lines = score.key, "mask", [*score.lines, *lines]
    if call.has_silent_key:
        names = [f"key_{index}", f"values_{index}", f"mask_{index}"]
        lines += call_lines(", ".join(names), "with_silent_key", [key, values, mask])
        key, values, mask = names
        if score.bias:
            lines.append(f"bias_{index} = nn.functional.pad({score.bias}, (0, 0, 1, 0))")
            score = replace(score, bias=f"bias_{index}")
    given = [score.query, key, values, mask]
    given += [score.scale] if score.scale else []
    given += word
    given += [f"bias={score.bias}"] if score.bias else []
    function, shape = _function(call, score, is_part=keys is not None)
    return [*lines, *_results(call, function, [*given, *shape], keys)]


def _mean(call: Lowered, keys: list[str] | None, word: list[str]) -> list[str]:
    """Values that all weigh the same."""
    (step,) = call.sums
    name = step.variable
    given = [operand_names(step, keys)[1], "mask", "x.shape[1]", *word]
    lines = call_lines(name, "visible_mean", given)
    if step.operands[1].is_repeated:
        lines.append(f"{name} = {repeated(name, step.operands[1], step)}")
    return lines


def _pairs(call: Lowered, keys: list[str] | None) -> list[str]:
    """A small network over pairs, and what its weights sum."""
    (score,), (values, lines) = call.scores, _values(call, keys)
    name = f"pairs_{score.index}"
    given = [*arguments(score, keys), *(["x=x"] if "x" in score.primitive.extras else [])]
    if keys is not None and score.primitive.is_positional:
        given.append("start=start")
    lines = [*lines, *call_lines(name, f"self.{score.module}.pair_scores", given)]
    return [*lines, *_results(call, "attend_pairs", [name, values, "mask"], keys)]


def _function(call: Lowered, score: Features, *, is_part: bool) -> tuple[str, list[str]]:
    """The function that a call is, and what it is told of the shape of the weights."""
    name = call.normaliser.primitive.name
    if name == "softmax_free":
        return "linear_attention", []
    shape = [f"cap={score.cap}"] if score.cap else []
    if score.slopes:
        shape += [f"slopes={score.slopes}", *(["start=start"] if is_part else [])]
    if name == "sigmoid":
        has_bias = call.normaliser.params["length_bias"]
        shape.append(f'weights="{"sigmoid_over_length" if has_bias else name}"')
    return ("shaped_attention" if shape else "dot_product_attention"), shape


def _results(call: Lowered, function: str, given: list[str], keys: list[str] | None) -> list[str]:
    """The call itself, and its result as the graph reads it."""
    first = call.sums[0]
    if len(call.sums) == 1:
        lines = call_lines(first.variable, function, given)
        if call.is_folded:
            heads = heads_text(first.heads, "self.heads")
            lines.append(f"{first.variable} = unfold_heads({first.variable}, {heads})")
        return lines
    lines = call_lines(f"sums_{first.index}", function, given)
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
