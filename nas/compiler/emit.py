"""Write a plan as Python source: one readable class, ``Attention(dim, heads)``.

The source that is written is the source that trains and the source that is exported; only its
first lines differ (imports here, the inlined classes in an exported file). Every name in it
comes from the registry or from a fixed list, so a genome can put no code of its own into it.
"""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Any

from nas.compiler.formula import formula_of
from nas.compiler.forward import methods
from nas.compiler.labels import LINE, call_lines, heads_text, indented, times_text, width_text
from nas.compiler.lowering import chosen_rules, lower, uncalled
from nas.genome import key_width, share
from nas.kernels import fast_class, means, runtime, shaped, windows
from nas.primitives.alibi import alibi_slopes
from nas.primitives.products import unit_length

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from nas.compiler.lowering import Fused
    from nas.compiler.plan import Plan, Step


def class_source(
    plan: Plan,
    dim: int,
    heads: int,
    qkv_bias: bool,
    *,
    fuse: bool | Collection[str] = True,
) -> str:
    """The source of the class alone; ``dim`` and ``heads`` are the defaults it gets.

    Args:
        fuse: which rules of ``nas.compiler.lowering`` to apply: all, none, or those named.
    """
    fused = lower(plan, chosen_rules(fuse))
    lines = ["class Attention(nn.Module):"]
    lines += indented([*docstring_lines(plan), ""])
    lines += indented([f"def __init__(self, dim: int = {dim}, heads: int = {heads}) -> None:"])
    lines += indented(_constructor(plan, qkv_bias, fused), 2)
    lines += ["", *indented(methods(plan, fused))]
    return "\n".join(lines) + "\n"


def docstring_lines(plan: Plan) -> list[str]:
    """What the class says of itself."""
    lines = [*textwrap.wrap(f'"""{formula_of(plan)}', LINE, break_long_words=False), ""]
    window = plan.genome.visibility.window
    if window is not None:
        lines += [
            f"A token sees {window // 2} tokens on either side, with is_causal the last {window};",
            "attn_mask hides further tokens, and neither widens nor moves the window.",
            "",
        ]
    return [*lines, "(batch, tokens, dim) to (batch, tokens, dim).", '"""']


def parts(plan: Plan, text: str) -> tuple[Any, ...]:
    """The runtime functions and the primitives' classes that a source of a plan uses."""
    candidates: tuple[Callable[..., Any], ...] = (
        share,
        key_width,
        runtime.rounded,
        runtime.split_heads,
        runtime.merge_heads,
        runtime.repeat_heads,
        runtime.visible_keys,
        runtime.fold_heads,
        runtime.unfold_heads,
        runtime.by_head,
        runtime.squared_length,
        unit_length,
        runtime.with_silent_key,
        runtime.dot_product_attention,
        shaped.shaped_attention,
        means.visible_mean,
        means.linear_attention,
        alibi_slopes,
        windows.windowed_keys,
        windows.by_rows,
        windows.by_windows,
        *(fast_class(step.primitive.module) for step in plan.steps),
    )
    called = [f for f in candidates if re.search(rf"\b{f.__name__}\(", text)]
    return tuple(dict.fromkeys(called))


def import_lines(plan: Plan, text: str) -> list[str]:
    """Imports under which a source of a plan runs inside this package."""
    lines = {f"from {item.__module__} import {item.__name__}" for item in parts(plan, text)}
    return ["import torch", "from torch import Tensor, nn", "", *sorted(lines)]


def constructor_lines(
    plan: Plan,
    qkv_bias: bool,
    own: list[str],
    built: list[Step],
    *,
    is_fast: bool = False,
) -> list[str]:
    """The constructor's body.

    Args:
        own: lines of a form of source.
        built: the steps that have a module.
        is_fast: of the primitive's fast class.
    """
    lines = [
        "super().__init__()",
        "if dim < 1 or heads < 1 or dim % heads:",
        '    raise ValueError(f"dim {dim} and heads {heads}: heads must divide dim")',
        "self.dim, self.heads = dim, heads",
        *own,
    ]
    bias = str(qkv_bias)
    for stream in plan.streams:
        if stream.is_projected:
            width = times_text(heads_text(stream.type.heads), width_text(stream.type.width))
            lines.append(f"self.w{stream.name} = nn.Linear(dim, {width}, bias={bias})")
    for step in built:
        module = fast_class(step.primitive.module) if is_fast else step.primitive.module
        lines += _build(step, bias, module.__name__)
    if plan.genome.projections.has_wo:
        lines.append(f"self.wo = nn.Linear({_merged(plan)}, dim)")
    return lines


def _constructor(plan: Plan, qkv_bias: bool, fused: Fused) -> list[str]:
    replaced = uncalled(plan, fused) | set(fused)
    scores = {step.index for call in fused.values() for step in call.scores}
    built = [s for s in plan.steps if s.index not in replaced or s.primitive.is_parametric]
    own = [
        f"self.scale_{step.index} = {_scale(step)}"
        for step in plan.steps
        if step.index in scores and "rank" in step.primitive.sizes and step not in built
    ]
    return constructor_lines(plan, qkv_bias, own, built, is_fast=True)


def _scale(score: Step) -> str:
    return f"({width_text(score.rank)}) ** -0.5"


def size_texts(step: Step, bias: str) -> dict[str, str]:
    """Expressions for the sizes that a step's module may ask for."""
    known = {"dim": "dim", "heads": heads_text(step.heads), "bias": bias}
    if step.width is not None:
        known["width"], known["rank"] = width_text(step.width), width_text(step.rank)
    return known | ({"filtered": "True"} if step.is_filtered else {})


def _build(step: Step, bias: str, name: str) -> list[str]:
    defaults = step.primitive.defaults()
    arguments = [f"{name}={text}" for name, text in step.bind(size_texts(step, bias)).items()]
    arguments += [f"{k}={v!r}" for k, v in step.params.items() if v != defaults[k]]
    return call_lines(f"self.{step.module}", name, arguments)


def _merged(plan: Plan) -> str:
    width = width_text(plan.output.width)
    is_sum = plan.genome.projections.merge == "sum"
    return width if is_sum else times_text(heads_text(plan.output.heads), width)
