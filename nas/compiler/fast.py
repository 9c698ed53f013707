"""Write a plan as source for training, which calls the fast functions of ``nas.compiler.kernels``.

The method ``forward`` contains one or more lines for each step (primitive call) of the plan:

    query_1 = by_head(q, self.temperature_1.factor * self.scale_0)
    tokens_3 = dot_product_attention(query_1, k, v, mask)

Steps that compute a number for each pair of query and key may run for one block of queries at a
time. The class then contains these steps in a method ``attend``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from torch import nn

from nas.compiler.features import TextOperations, features_of
from nas.compiler.kernels import fast_class, gated, means, runtime, shaped, windows
from nas.compiler.source import Source
from nas.compiler.text import call_line
from nas.genome.primitives.factors import Weights

if TYPE_CHECKING:
    from nas.compiler.features import Features
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
        **vars(shaped),
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
        """Whether the function of a kernel call has an argument ``is_causal``.

        False for softmax_one, which is computed with an additional key and therefore needs a mask.
        """
        return not call.has_silent_key

    def mask_readers(self) -> list[Step]:
        """Return the steps on pairs that read a mask; steps on tokens read the mask ``seen``."""
        return [step for step in super().mask_readers() if step.is_paired]

    def extras(self, step: Step) -> dict[str, str]:
        """Return expressions for ``x`` and ``mask`` by name, if the step's module takes them."""
        found = super().extras(step)
        return found if step.is_paired or "mask" not in found else found | {"mask": "seen"}

    def mask_lines(self) -> list[str]:
        """Return the lines that compute masks from the arguments of ``forward``.

        If the function ``by_windows`` computes a mask for each block of queries, no line computes
        the mask of the window.
        """
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
        if not self.plan.is_blockwise:
            lines.append(call_line("mask", "windowed_keys", [*arguments, *self._limits()]))
        return lines

    def _limits(self) -> list[str]:
        visibility = self.plan.genome.visibility
        return [f"window={visibility.window}", f"global_tokens={visibility.global_tokens}"]

    # The steps of a stage that run for one block of queries at a time become a method.

    def pairs(self, steps: list[Step]) -> list[str]:
        """Return the lines of a stage's steps that work on pairs of query and key.

        Steps that can run for one block of queries at a time become a method, and the lines call
        this method.
        """
        if not self.plan.is_windowed:  # calls of kernels choose their blocks themselves
            alone = [step for step in steps if step.index in self.calls]
            steps = [step for step in steps if step.index not in self.calls]
            if alone:
                return super().pairs(alone) + self.pairs(steps)
        if not steps or not self.plan.is_blockwise:
            return super().pairs(steps)
        calls = [self.calls[step.index] for step in steps if step.index in self.calls]
        rows, keys = _sides(steps, calls)
        computed = [self.calls[s.index].sums if s.index in self.calls else (s,) for s in steps]
        results = [step.variable for steps in computed for step in steps if step.makes_tokens]
        is_only = max(step.stage for step in self.plan.steps if step.is_paired) == 0
        name = "attend" if is_only else f"attend_{steps[0].stage}"
        self.keys = keys
        self.methods += ["", *_method(name, rows, keys, super().pairs(steps), results)]
        self.keys = None
        arguments = [f"self.{name}", _tuple(rows), _tuple(keys), "x"]
        target = ", ".join(results)
        if self.plan.is_windowed:
            arguments += [*_MASKS[1:], "is_causal", *self._limits()]
            return [call_line(target, "by_windows", arguments)]
        # Each step stores two numbers for each pair: its result and its operand.
        return [call_line(target, "by_rows", [*arguments, "mask", f"planes={2 * len(steps)}"])]

    # Calls that replace aggregations.

    def call(self, call: Lowered) -> list[str]:
        """Return the lines that call a kernel in place of the steps that it replaces."""
        causal = ["is_causal=is_causal"] if self.gets_is_causal(call) else []
        mask = "kept" if causal and not self.all_get_is_causal() else "mask"
        if not call.scores:
            return self._mean(call, mask, causal)
        operations, index = TextOperations(self), call.sums[0].index
        score = features_of(call, operations)
        values, lines = self._values(call)
        key, lines = score.key, [*operations.lines, *lines]
        if call.is_ratio:
            lines.append(f"ones_{index} = with_ones({values})")
            values = f"ones_{index}"
        if call.has_silent_key:
            names = [f"key_{index}", f"values_{index}", f"mask_{index}"]
            lines.append(call_line(", ".join(names), "with_silent_key", [key, values, mask]))
            key, values, mask = names
            if call.weights is Weights.SOFTMAX_SINK:
                score = self._with_sink(call, score, key)
            elif score.bias:
                lines.append(f"bias_{index} = nn.functional.pad({score.bias}, (0, 0, 1, 0))")
                score = replace(score, bias=f"bias_{index}")
        arguments = [score.query, key, values, mask]
        arguments += [score.scale] if score.scale else []
        arguments += causal
        arguments += [f"bias={score.bias}"] if score.bias else []
        function, shape = self._function(call, score)
        return [*lines, *self._results(call, function, [*arguments, *shape])]

    def _with_sink(self, call: Lowered, score: Features[str], key: str) -> Features[str]:
        """Return a score whose bias contains the learned scores of the additional first key."""
        sink = f"self.{call.normaliser.module}.sink"
        return replace(score, bias=f"with_sink({sink}, {key}, {score.bias})")

    def _mean(self, call: Lowered, mask: str, causal: list[str]) -> list[str]:
        (step,) = call.sums
        name = step.variable
        lines = [
            call_line(name, "visible_mean", [self.names(step)[1], mask, "x.shape[1]", *causal])
        ]
        if step.operands[1].is_repeated:
            lines.append(f"{name} = {self.repeated(name, step.operands[1], step)}")
        return lines

    def _function(self, call: Lowered, score: Features[str]) -> tuple[str, list[str]]:
        """Return the name of the kernel's function, and arguments for the score's shape."""
        if call.is_linear:
            options = ["divide=False"] if call.weights is Weights.SUM else []
            if score.gates:
                return "gated_linear_attention", [*options, f"gates={score.gates}"]
            return "linear_attention", options
        shape = [f"cap={score.cap!r}"] if score.cap else []
        if score.slopes:
            shape += [f"slopes={score.slopes}", *(["start=start"] if self.keys else [])]
        if score.decay:
            shape.append(f"decay=({', '.join(score.decay)})")
        if call.weights in (Weights.SIGMOID, Weights.SIGMOID_OVER_LENGTH):
            shape.append(f'weights="{call.weights}"')
        return ("shaped_attention" if shape else "dot_product_attention"), shape

    def _results(self, call: Lowered, function: str, arguments: list[str]) -> list[str]:
        """Return the lines that call a kernel's function and assign its results to variables."""
        first = call.sums[0]
        if call.is_ratio:
            function, arguments = "by_last", [f"{function}({', '.join(arguments)})"]
        if len(call.sums) == 1:
            lines = [call_line(first.variable, function, arguments)]
            if call.shares_weights:
                unfolded = f"unfold_heads({first.variable}, {self.heads[first.heads]})"
                lines.append(f"{first.variable} = {unfolded}")
            return lines
        lines = [call_line(f"sums_{first.index}", function, arguments)]
        widths = ", ".join(f"{self.names(step)[1]}.shape[-1]" for step in call.sums)
        target = ", ".join(step.variable for step in call.sums)
        return [*lines, call_line(target, f"sums_{first.index}.split", [f"({widths})", "dim=-1"])]

    def _values(self, call: Lowered) -> tuple[str, list[str]]:
        """Return the variable of a kernel call's values, and the lines that compute the values."""
        name = f"values_{call.sums[0].index}"
        if len(call.sums) > 1:
            parts = ", ".join(self.arguments(step)[1] for step in call.sums)
            return name, [call_line(name, "torch.cat", [f"({parts})", "dim=-1"])]
        read = self.names if call.is_grouped else self.arguments
        values = read(call.sums[0])[1]
        if not call.shares_weights:
            return values, []
        return name, [call_line(name, "fold_heads", [values, self.heads[call.normaliser.heads]])]


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


def _sides(steps: list[Step], calls: list[Lowered]) -> tuple[list[str], list[str]]:
    """Return the variables that steps and calls read: first queries, then keys and values."""
    rows: dict[str, None] = {}
    keys: dict[str, None] = {}
    for step in [*(part for call in calls for part in (*call.scores, *call.sums)), *steps]:
        for operand in step.operands:
            if operand.port.is_query or operand.port.is_past:
                (rows if operand.port.is_query else keys)[operand.variable] = None
    return list(rows), list(keys)


def _tuple(names: list[str]) -> str:
    return f"({names[0]},)" if len(names) == 1 else f"({', '.join(names)})"
