"""Write a plan as Python source: one readable class, ``Attention(dim, heads)``.

The source that is written is the source that trains and the source that is exported; only its
first lines differ (imports here, the inlined classes in an exported file). Every name in it
comes from the registry or from a fixed list, so a genome can put no code of its own into it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nas.compiler import runtime
from nas.compiler.formula import formula_of
from nas.genome import key_width, share
from nas.types import MODEL

if TYPE_CHECKING:
    from collections.abc import Callable

    from nas.compiler.plan import Operand, Plan, Step, Stream


def class_source(plan: Plan, dim: int, heads: int, qkv_bias: bool, about: str = "") -> str:
    """The source of the class alone; ``dim`` and ``heads`` are the defaults it gets."""
    lines = ["class Attention(nn.Module):"]
    lines += _indent(
        [
            f'"""{formula_of(plan)}',
            "",
            "(b, n, dim) to (b, n, dim).",
            *([about] if about else []),
            '"""',
            "",
        ]
    )
    lines += _indent([f"def __init__(self, dim: int = {dim}, heads: int = {heads}) -> None:"])
    lines += _indent(_constructor(plan, qkv_bias), 2)
    lines += ["", *_indent(_signature())]
    lines += _indent(_forward(plan), 2)
    return "\n".join(lines) + "\n"


def functions(plan: Plan) -> tuple[Callable[..., Any], ...]:
    """The runtime functions that the class calls."""
    text = class_source(plan, 1, 1, False)
    candidates = (
        share,
        key_width,
        runtime.split_heads,
        runtime.merge_heads,
        runtime.repeat_heads,
        runtime.visible_keys,
    )
    return tuple(f for f in candidates if f"{f.__name__}(" in text)


def import_lines(plan: Plan) -> list[str]:
    """Imports under which the class runs inside this package."""
    modules = {step.primitive.module for step in plan.steps}
    wanted: list[Any] = [*functions(plan), *modules]
    lines = sorted({f"from {item.__module__} import {item.__name__}" for item in wanted})
    return ["from torch import Tensor, nn", "", *lines]


def _constructor(plan: Plan, qkv_bias: bool) -> list[str]:
    lines = [
        "super().__init__()",
        "if dim < 1 or heads < 1 or dim % heads:",
        '    raise ValueError(f"dim {dim} and heads {heads}: heads must divide dim")',
        "self.dim, self.heads = dim, heads",
    ]
    bias = str(qkv_bias)
    for stream in plan.streams:
        if stream.is_projected:
            width = _times(_heads(stream.type.heads), _width(stream.type.width))
            lines.append(f"self.w{stream.name} = nn.Linear(dim, {width}, bias={bias})")
    lines += [_build(step, bias) for step in plan.steps]
    if plan.genome.projections.has_wo:
        lines.append(f"self.wo = nn.Linear({_merged(plan)}, dim)")
    return lines


def _build(step: Step, bias: str) -> str:
    known = {"dim": "dim", "heads": _heads(step.heads), "bias": bias}
    if step.width is not None:
        known["width"] = known["head_width"] = _width(step.width)
        known["rank"] = _width("all" if step.width == MODEL else step.width)
    defaults = step.primitive.defaults()
    if step.is_filtered:
        known["filtered"] = "True"
    arguments = [f"{name}={known[name]}" for name in step.primitive.sizes if name in known]
    arguments += [f"{k}={v!r}" for k, v in step.params.items() if v != defaults[k]]
    name = step.primitive.module.__name__
    return f"self.{step.module} = {name}({', '.join(arguments)})"


def _signature() -> list[str]:
    return [
        "def forward(",
        "    self,",
        "    x: Tensor,",
        "    attn_mask: Tensor | None = None,",
        "    key_padding_mask: Tensor | None = None,",
        "    is_causal: bool = False,",
        ") -> Tensor:",
        '    """Masks: attn_mask True where allowed, key_padding_mask True at padding."""',
    ]


def _forward(plan: Plan) -> list[str]:
    lines = []
    if plan.unsafe:
        lines += [
            "if is_causal:",
            f'    raise ValueError("{", ".join(plan.unsafe)} sees later tokens: not causal")',
        ]
    if plan.needs_mask:
        lines.append("mask = visible_keys(x, attn_mask, key_padding_mask, is_causal)")
    lines += [_read(stream) for stream in plan.streams]
    lines += [_call(step) for step in plan.steps]
    out = plan.steps[-1].variable
    is_sum = plan.genome.projections.merge == "sum"
    merged = f"{out}.sum(dim=1)" if is_sum else f"merge_heads({out})"
    return [
        *lines,
        f"return self.wo({merged})" if plan.genome.projections.has_wo else f"return {merged}",
    ]


def _read(stream: Stream) -> str:
    source = f"self.w{stream.name}(x)" if stream.is_projected else "x"
    return f"{stream.name} = split_heads({source}, {_heads(stream.type.heads, 'self.heads')})"


def _call(step: Step) -> str:
    arguments = [_operand(operand, step) for operand in step.operands]
    arguments += [f"{name}={name}" for name in step.primitive.extras]
    return f"{step.variable} = self.{step.module}({', '.join(arguments)})"


def _operand(operand: Operand, step: Step) -> str:
    if not operand.is_repeated:
        return operand.variable
    return f"repeat_heads({operand.variable}, {_heads(step.heads, 'self.heads')})"


def _heads(label: str, whole: str = "heads") -> str:
    if label in ("all", "one"):
        return whole if label == "all" else "1"
    return f'share("{label}", {whole})'


def _width(label: str | None) -> str:
    if label in ("all", MODEL):
        return "dim // heads" if label == "all" else "dim"
    return f'key_width("{label}", dim // heads)'


def _times(count: str, width: str) -> str:
    if count == "1":
        return width
    if (count, width) == ("heads", "dim // heads"):
        return "dim"
    return (
        f"{count} * ({width})"
        if "//" in width and not width.startswith("key")
        else (f"{count} * {width}")
    )


def _merged(plan: Plan) -> str:
    width = _width(plan.output.width)
    is_sum = plan.genome.projections.merge == "sum"
    return width if is_sum else _times(_heads(plan.output.heads), width)


def _indent(lines: list[str], levels: int = 1) -> list[str]:
    return ["    " * levels + line if line else "" for line in lines]
