"""Write a plan as a class in readable torch, for exports.

The class has the same parameters as the source for training, and computes the same values and
gradients. Dot products under softmax become ``F.scaled_dot_product_attention``. Primitives without
weights become expressions, and the classes of other primitives are copied. The class works with any
number of tokens.
"""

from __future__ import annotations

import ast
import inspect
import sys
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn

from nas.compiler.inlining import PROVIDED, globals_of, source_of
from nas.compiler.kernels import fast_class
from nas.compiler.kernels.gated import gated_linear_attention
from nas.compiler.source import Source
from nas.compiler.specialising import fold, functions_in, name_of
from nas.compiler.statements import parsed, unparsed
from nas.compiler.text import LINE, call_line, size_texts
from nas.genome.primitives.delta import Delta

if TYPE_CHECKING:
    from nas.compiler.lowering import Lowered
    from nas.compiler.plan import Plan, Step

_MOST_LINES: Final = 3  # of a primitive that is written as expressions
_PAST: Final = "torch.ones(n, n, dtype=torch.bool, device=x.device).tril()"


def visible_mean(values: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mean of the values that each query may see; zeros if the query sees none."""
    if mask is None:
        return values.mean(dim=2, keepdim=True).expand_as(values)
    weights = mask.to(values.dtype) / mask.sum(dim=-1, keepdim=True).clamp(min=1)
    return (weights @ values).expand_as(values)


def sums_of_values(
    query: Tensor, key: Tensor, values: Tensor, mask: Tensor | None, scale: float
) -> Tensor:
    """Return scale query·key^T·values, summed over the visible keys."""
    query = query * scale
    if mask is None or mask.shape[-2] == 1:
        return query @ (key.mT @ (values if mask is None else values * mask.mT.to(values.dtype)))
    return (query @ key.mT).masked_fill(~mask, 0.0) @ values


def linear_attention(
    query: Tensor, key: Tensor, values: Tensor, mask: Tensor | None, scale: float
) -> Tensor:
    """Return scale query·key^T·values / n, where n is the number of visible keys."""
    query = query * scale
    if mask is None or mask.shape[-2] == 1:
        kept = torch.ones_like(key[:1, :1, :, :1]) if mask is None else mask.mT.to(values.dtype)
        return query @ (key.mT @ (values * kept)) / kept.sum(dim=2, keepdim=True).clamp(min=1)
    weights = (query @ key.mT).masked_fill(~mask, 0.0)
    return (weights / mask.sum(dim=-1, keepdim=True).clamp(min=1)) @ values


class PlainSource(Source):
    """Writes a plan as the source of a class in readable torch.

    Args:
        calls: kernel calls; those for which neither torch nor this module has a function are left
            out.
    """

    split = "{x}.unflatten(-1, ({heads}, -1)).transpose(1, 2)"
    repeat = "{x}.repeat_interleave({heads} // {x}.shape[1], dim=1)"
    merge = "{x}.transpose(1, 2).flatten(2)"
    is_specialised = True
    functions = {
        **Source.functions,
        "visible_mean": visible_mean,
        "linear_attention": linear_attention,
        "sums_of_values": sums_of_values,
        "gated_linear_attention": gated_linear_attention,
    }

    def __init__(self, plan: Plan, calls: dict[int, Lowered]) -> None:
        short = {i: c for i, c in calls.items() if c.decay is None and not c.is_ratio}
        super().__init__(plan, short)

    def module(self, step: Step) -> type[nn.Module]:
        """Return the class of a step's module; the delta rule with gates is written in chunks.

        Without chunks, gates of features would need a number for each pair of tokens and feature.
        Without gates, all pairs of tokens are computed, as in the sums of values under a mask; this
        is short to read, and the source for training is faster on long sequences.
        """
        module = step.primitive.module
        is_gated = step.operands[-1].port.kind.is_gates
        return fast_class(module) if module is Delta and is_gated else module

    def step(self, step: Step) -> list[str]:
        """Return the lines of a step: expressions if they are short, else a call of a module."""
        return self._expression(step) or super().step(step)

    def _expression(self, step: Step) -> list[str]:
        """Return assignments that compute a step without a call of the step's module.

        Returns:
            At most three lines. The list is empty if the primitive has weights, if its code is
            longer, or if its code has statements other than assignments and a return.
        """
        module: Any = step.primitive.module
        if step.primitive.is_parametric or module.__bases__ != (nn.Module,):
            return []
        functions = functions_in(ast.parse(source_of(module)))
        bodies = {function.name: ast.Module(function.body, []) for function in functions}
        texts = {"filtered": "False"} | size_texts(step, self.heads[step.heads], "False")
        texts |= {name: repr(value) for name, value in step.params.items()}
        arguments = {name: parsed(text) for name, text in texts.items()}
        attributes: dict[str, ast.expr] = {}
        constants: dict[str, str] = {}
        for statement in bodies["__init__"].body[1:] if "__init__" in bodies else ():
            if not isinstance(statement, ast.Assign):
                return []
            name, value = name_of(statement), fold(statement.value, arguments)
            if not isinstance(value, ast.Constant):
                constants[f"{name[1:]}_{step.index}"] = unparsed(value)
                value = parsed(f"self{name}_{step.index}")
            attributes[name] = value
        body = fold(bodies["forward"], attributes)
        read = {name_of(node) for node in ast.walk(body) if isinstance(node, ast.Attribute)}
        names = list(inspect.signature(module.forward).parameters)[1:]
        operands = dict(zip(names, self.arguments(step), strict=False))
        operands |= {"start": "0"} | self.extras(step)
        # Operands with repeated heads get a line each.
        variables: dict[str, str] = {}
        for name, text in operands.items():
            if len(text) > LINE // 3:
                operands[name] = variables.setdefault(text, f"{name}_{step.index}")
        lines = [f"{variable} = {text}" for text, variable in variables.items()]
        values = {name: parsed(text) for name, text in operands.items()}
        for statement in body.body:
            if not isinstance(statement, ast.Assign | ast.Return) or statement.value is None:
                return []
            name = f"{name_of(statement)}_{step.index}"
            target = step.variable if isinstance(statement, ast.Return) else name
            lines.append(f"{target} = {unparsed(fold(statement.value, values))}")
            values = {**values, name_of(statement): parsed(name)}
        is_short = len(lines) <= _MOST_LINES and max(map(len, lines)) <= LINE - 8
        if not is_short or read - {"", *(f".{name}" for name in constants)}:
            return []
        self.replaced.add(step.index)
        self.constants |= {n: text for n, text in constants.items() if f".{n}" in read}
        scope = vars(sys.modules[module.__module__])
        used = sorted({name for line in lines for name in globals_of(line)} - PROVIDED)
        self.used += [scope[name] for name in used if name in scope]
        return lines

    def accepts_is_causal(self, call: Lowered) -> bool:
        """Whether a kernel call is torch's fused attention, which has an argument ``is_causal``."""
        return call.score is not None and not call.is_linear

    def mask_lines(self) -> list[str]:
        """Return the lines that compute the variables ``mask`` and ``seen``, if steps read them."""
        plan, asking = self.plan, self.mask_readers()
        if not asking:
            return []
        asks_past = not plan.is_windowed or any(not step.is_paired for step in asking)
        lines = [
            "if key_padding_mask is not None:",
            "    kept = ~key_padding_mask[:, None, None]",
            "    mask = kept if mask is None else mask & kept",
        ]
        if any(call.is_gated for call in self.calls.values()):
            lines.append("kept = mask")
        if self.all_get_is_causal():
            lines += [
                "if is_causal and mask is not None:  # torch takes only one of the two",
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
        """Return the line that calls torch's fused attention, or a function of this module."""
        step, score = call.sum, call.score
        values = self.arguments(step)[1]
        if score is None:
            return [f"{step.variable} = visible_mean({values}, mask)"]
        if call.is_gated:
            query, key, gates, _ = self.arguments(score)
            mask = ["mask"] if self.plan.is_windowed else ["kept"]
            causal = [] if self.plan.is_windowed or self.plan.unsafe else ["is_causal"]
            divide = [] if call.is_divided else ["divide=False"]
            arguments = [query, key, values, *mask, self.scale(score), *causal, *divide]
            arguments.append(f"gates={gates}")
            return [call_line(step.variable, "gated_linear_attention", arguments)]
        arguments = [*self.arguments(score), values, "mask"]
        if call.is_linear:
            arguments.append(self.scale(score))
            function = "linear_attention" if call.is_divided else "sums_of_values"
            return [call_line(step.variable, function, arguments)]
        is_shared = [o.is_repeated for o in (*score.operands, step.operands[1])]
        is_grouped = is_shared == [False, True, True]  # torch repeats keys and values
        if is_grouped:
            arguments[1:3] = [score.operands[1].variable, step.operands[1].variable]
        arguments += ["is_causal=is_causal and mask is None"] if self.all_get_is_causal() else []
        if score.width != score.rank:  # torch's default scale uses the width
            arguments.append(f"scale={self.scale(score)}")
        arguments += ["enable_gqa=True"] if is_grouped else []
        return [call_line(step.variable, "F.scaled_dot_product_attention", arguments)]
