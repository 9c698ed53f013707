"""Write a plan as source for training, which calls the fast functions of ``nas.compiler.kernels``.

The method ``forward`` contains one or more lines for each step (primitive call) of the plan:

    tokens_0 = self.linear_0(v)
    tokens_3 = dot_product_attention(q, k, tokens_0, mask, self.scale_1)

Steps that compute a number for each pair of query and key may run for one block of queries at a
time. The class then contains these steps in a method ``attend``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from nas.compiler.kernels import fast_class, gated, means, runtime, windows
from nas.compiler.source import Source
from nas.compiler.text import call_line

if TYPE_CHECKING:
    from nas.compiler.lowering import Lowered
    from nas.compiler.plan import Step

_MASKS = ["x", "attn_mask", "key_padding_mask"]


class FastSource(Source):
    """Writes a plan as the source of a class that is fast in training."""

    split = "split_heads({x}, {heads})"
    repeat = "repeat_heads({x}, {heads})"
    merge = "merge_heads({x})"
    functions = {
        **Source.functions,
        **vars(runtime),
        **vars(gated),
        **vars(means),
        **vars(windows),
    }

    def module(self, step: Step) -> type[nn.Module]:
        """Return the class of a step's module: the primitive's faster subclass if it has one."""
        return fast_class(step.primitive.module)

    def input(self) -> tuple[str, list[str]]:
        """Return the variable that the projections read, and the lines that compute it.

        If several streams are projected, the lines cast the input once to autocast's low precision.
        """
        is_shared = sum(stream.is_projected for stream in self.streams) > 1
        return ("shared", ["shared = rounded(x)"]) if is_shared else ("x", [])

    def accepts_is_causal(self, call: Lowered) -> bool:
        """Return True: all functions of kernel calls have an argument ``is_causal``."""
        return True

    def mask_readers(self) -> list[Step]:
        """Return the steps on pairs that read a mask; steps on tokens read the mask ``seen``."""
        return [step for step in super().mask_readers() if step.is_paired]

    def extras(self, step: Step) -> dict[str, str]:
        """Return expressions for ``x`` and ``mask`` by name, if the step's module takes them."""
        found = super().extras(step)
        return found if step.is_paired or "mask" not in found else found | {"mask": "seen"}

    def mask_lines(self) -> list[str]:
        """Return the lines that compute masks from the arguments of ``forward``."""
        asking, arguments = self.mask_readers(), [*_MASKS, "is_causal"]
        lines = []
        if tokens := [step for step in super().mask_readers() if not step.is_paired]:
            # Our operations on tokens ask for tokens that no query sees, and for queries that see
            # no key. Under is_causal alone there are none. A plug-in's may ask for pairs.
            are_ours = all(s.primitive.module.__module__.startswith("nas.") for s in tokens)
            others = "(attn_mask is not None or key_padding_mask is not None)"
            hidden = f"is_causal and {others}" if are_ours else "is_causal"
            lines.append(call_line("seen", "visible_keys", [*_MASKS, hidden]))
        if not self.plan.is_windowed:
            if not self.all_get_is_causal() and asking:
                lines += [call_line("mask", "visible_keys", arguments)]
            if any(map(self.gets_is_causal, self.calls.values())):
                name = "mask" if self.all_get_is_causal() else "kept"
                lines.append(call_line(name, "visible_keys", [*_MASKS, "False"]))
            return lines
        visibility = self.plan.genome.visibility
        limits = [f"window={visibility.window}", f"global_tokens={visibility.global_tokens}"]
        return [*lines, call_line("mask", "windowed_keys", [*arguments, *limits])]

    # The steps of a stage that run for one block of queries at a time become a method.

    def pairs(self, steps: list[Step]) -> list[str]:
        """Return the lines of a stage's steps that work on pairs of query and key.

        Steps that can run for one block of queries at a time become a method, and the lines call
        this method.
        """
        alone = [step for step in steps if step.index in self.calls]
        if alone:  # kernels choose their blocks themselves
            rest = [step for step in steps if step.index not in self.calls]
            return super().pairs(alone) + self.pairs(rest)
        if not steps or not self.plan.is_blockwise:
            return super().pairs(steps)
        rows, keys = _sides(steps)
        results = [step.variable for step in steps if step.makes_tokens]
        is_only = max(step.stage for step in self.plan.steps if step.is_paired) == 0
        name = "attend" if is_only else f"attend_{steps[0].stage}"
        self.keys = keys
        self.methods += ["", *_method(name, rows, keys, super().pairs(steps), results)]
        self.keys = None
        # Each step stores two numbers for each pair: its result and its operand.
        arguments = [f"self.{name}", _tuple(rows), _tuple(keys), "x", "mask"]
        arguments.append(f"planes={2 * len(steps)}")
        return [call_line(", ".join(results), "by_rows", arguments)]

    # Calls that replace aggregations.

    def call(self, call: Lowered) -> list[str]:
        """Return the lines that call a kernel in place of the steps that it replaces."""
        total, causal = call.sum, ["is_causal=is_causal"] if self.gets_is_causal(call) else []
        mask = "kept" if causal and not self.all_get_is_causal() else "mask"
        name, values = total.variable, self.arguments(total)[1]
        if call.score is None:
            values = self.names(total)[1]
            lines = [call_line(name, "visible_mean", [values, mask, "x.shape[1]", *causal])]
            if total.operands[1].is_repeated:
                lines.append(f"{name} = {self.repeated(name, total.operands[1], total)}")
            return lines
        query, key, *gates = self.arguments(call.score)
        function = "dot_product_attention"
        if call.is_linear and not call.is_gated:
            # Sums of key^T·values are computed once for all queries that share them.
            function, key = "linear_attention", self.names(call.score)[1]
            values = self.names(total)[1]
        elif call.is_gated:
            function = "gated_linear_attention"
        elif call.decay is not None:
            function, gates = "forgetting_attention", self.arguments(call.decay)[1:]
        arguments = [query, key, values, mask, self.scale(call.score), *causal]
        arguments += [f"gates={gates[0]}"] if gates else []
        arguments += ["divide=False"] if call.is_linear and not call.is_divided else []
        if not call.is_ratio:
            return [call_line(name, function, arguments)]
        ones, sums = f"ones_{total.index}", f"sums_{total.index}"
        arguments[2] = ones
        lines = [f"{ones} = with_ones({values})", call_line(sums, function, arguments)]
        return [*lines, f"{name} = by_last({sums})"]


def _method(
    name: str, rows: list[str], keys: list[str], body: list[str], results: list[str]
) -> list[str]:
    """Return the lines of a method that computes some steps for one block of queries.

    Args:
        rows: variables that the steps read as queries.
        keys: variables that the steps read as keys or values.
        body: the lines of the steps.
        results: variables that the method returns.
    """
    names = [*(f"{row}_rows" if row in keys else row for row in rows), *keys, "x"]
    params = ["self", *(f"{arg}: Tensor" for arg in names), "mask: Tensor | None", "start: int"]
    result = "Tensor" if len(results) == 1 else "tuple[Tensor, ...]"
    return [
        f"def {name}({', '.join(params)}) -> {result}:",
        '    """Queries from ``start`` on, with their rows of x, against the keys given."""',
        *(f"    {line}" for line in body),
        f"    return {', '.join(results)}",
    ]


def _sides(steps: list[Step]) -> tuple[list[str], list[str]]:
    """Return the variables that steps read: first queries, then keys and values."""
    rows: dict[str, None] = {}
    keys: dict[str, None] = {}
    for step in steps:
        for operand in step.operands:
            if operand.port.is_query or operand.port.is_past:
                (rows if operand.port.is_query else keys)[operand.variable] = None
    return list(rows), list(keys)


def _tuple(names: list[str]) -> str:
    return f"({names[0]},)" if len(names) == 1 else f"({', '.join(names)})"
