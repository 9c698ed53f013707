"""The plain form of source: readable torch code.

Equal to the fast form in values, gradients and parameters. Dot products under softmax are
``F.scaled_dot_product_attention``; primitives without parameters become expressions, the classes of
others are copied. No line depends on a number of tokens, so that exports accept every length.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from nas.compiler import helpers
from nas.compiler.expressions import written_out
from nas.compiler.lowering import lower
from nas.compiler.source import Source
from nas.compiler.text import call_lines, size_texts
from nas.genome.primitives.factors import Factors, Weights

if TYPE_CHECKING:
    from nas.compiler.lowering import Lowered
    from nas.compiler.plan import Plan, Step

_PAST: Final = "torch.ones(n, n, dtype=torch.bool, device=x.device).tril()"


class PlainSource(Source):
    """The plain form; see the module docstring.

    Args:
        rules: names of the rules that may be used; those without a function in torch or in
            ``nas.compiler.helpers`` are ignored.
    """

    split = "{x}.unflatten(-1, ({heads}, -1)).transpose(1, 2)"
    repeat = "{x}.repeat_interleave({heads} // {x}.shape[1], dim=1)"
    merge = "{x}.transpose(1, 2).flatten(2)"
    is_specialised = True
    modules = (*Source.modules, helpers)

    def __init__(self, plan: Plan, rules: Collection[str]) -> None:
        replaceable = {step.primitive.name for step in plan.steps if _has_function(step)}
        super().__init__(plan, lower(plan, replaceable.intersection(rules)))

    def step(self, step: Step) -> list[str]:
        """The lines of a step: an expression if that is short, else a call of a module."""
        names = list(inspect.signature(step.primitive.module.forward).parameters)[1:]
        operands = dict(zip(names, self.arguments(step), strict=False))
        operands |= {"start": "0"} | self.extras(step)
        texts = {"filtered": "False"} | size_texts(step, self.heads[step.heads], "False")
        inline = written_out(step, operands, texts, step.params | {"filtered": step.is_filtered})
        if inline is None:
            return super().step(step)
        self.replaced.add(step.index)
        self.constants |= inline.constants
        self.used += inline.roots
        return inline.lines

    def accepts_is_causal(self, call: Lowered) -> bool:
        """Whether the function takes ``is_causal``, as torch's fused attention does."""
        return call.weights is Weights.SOFTMAX

    def mask_lines(self) -> list[str]:
        """The lines that compute the masks."""
        plan, asking = self.plan, self.mask_readers()
        if not asking:
            return []
        asks_past = not plan.is_windowed or any(not step.is_paired for step in asking)
        lines = [
            "if key_padding_mask is not None:",
            "    kept = ~key_padding_mask[:, None, None]",
            "    mask = kept if mask is None else mask & kept",
        ]
        if self.all_get_is_causal():
            lines += [
                "if is_causal and mask is not None:  # torch takes one of the two",
                f"    mask = mask & {_PAST}",
            ]
        elif not plan.unsafe and asks_past:
            lines += [
                "if is_causal:",
                f"    past = {_PAST}",
                "    mask = past if mask is None else mask & past",
            ]
        if plan.is_windowed:
            lines += ["seen = mask"] if asks_past else []
            lines += self._window_lines()
        needs_length = plan.is_windowed or not plan.unsafe
        return ["mask, n = attn_mask, x.shape[1]" if needs_length else "mask = attn_mask", *lines]

    def _window_lines(self) -> list[str]:
        """The lines that add the mechanism's window to the mask."""
        visibility = self.plan.genome.visibility
        causal = "" if self.plan.unsafe else f"behind < {visibility.window} if is_causal else "
        lines = [
            "place = torch.arange(n, device=x.device)",
            "behind = place[:, None] - place",
            f"near = {causal}behind.abs() <= {(visibility.window or 0) // 2}",
        ]
        if count := visibility.global_tokens:
            lines.append(f"near = near | (place[:, None] < {count}) | (place < {count})")
        if not self.plan.unsafe:
            lines += ["if is_causal:", "    near = near & (behind >= 0)"]
        return [*lines, "mask = near if mask is None else mask & near"]

    def call(self, call: Lowered) -> list[str]:
        """The call of torch's or a helper's function that replaces aggregations."""
        step = call.sums[0]
        values = self.arguments(step)[1]
        if not call.scores:
            return [f"{step.variable} = visible_mean({values}, mask)"]
        (score,) = call.scores
        arguments = [*self.arguments(score), values, "mask"]
        if call.is_linear:
            return call_lines(step.variable, "linear_attention", [*arguments, self.scale(score)])
        is_shared = [o.is_repeated for o in (*score.operands, step.operands[1])]
        is_grouped = is_shared == [False, True, True]  # torch repeats keys and values
        if is_grouped:
            arguments[1:3] = [score.operands[1].variable, step.operands[1].variable]
        arguments += ["is_causal=is_causal and mask is None"] if self.all_get_is_causal() else []
        if score.width != score.rank:  # torch's default scale uses the width
            arguments.append(f"scale={self.scale(score)}")
        arguments += ["enable_gqa=True"] if is_grouped else []
        return call_lines(step.variable, "F.scaled_dot_product_attention", arguments)


def _has_function(step: Step) -> bool:
    """Whether torch or ``nas.compiler.helpers`` has a function for calls with this step."""
    primitive = step.primitive
    is_plain = primitive.factors is not None and primitive.factors == Factors(is_scaled=True)
    return is_plain or primitive.weights(step.params) in (Weights.LINEAR, Weights.MEAN)
