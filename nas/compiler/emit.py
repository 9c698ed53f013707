"""Write a plan as Python source: one readable class, ``Attention(dim, heads)``.

The source that is written is the source that trains and the source that is exported; only its
first lines differ (imports here, the inlined classes in an exported file). Every name in it
comes from the registry or from a fixed list, so a genome can put no code of its own into it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from nas.compiler import runtime, windows
from nas.compiler.formula import formula_of
from nas.genome import key_width, share
from nas.primitives.base import STREAM_OF_PORT, Kind
from nas.types import MODEL

if TYPE_CHECKING:
    from collections.abc import Callable

    from nas.compiler.plan import Operand, Plan, Step, Stream

    # The steps whose call is fused, each with its dot product and its softmax.
    Fused = dict[int, tuple[Step, Step]]


# Characters of a statement in a method, so that a line has at most a hundred.
LINE: Final = 92


def class_source(
    plan: Plan, dim: int, heads: int, qkv_bias: bool, about: str = "", *, fuse: bool = True
) -> str:
    """The source of the class alone; ``dim`` and ``heads`` are the defaults it gets.

    Args:
        fuse: let dot products, softmax and aggregation be one call where the graph has them so.
    """
    fused = plan.fused() if fuse else {}
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
    lines += _indent(_constructor(plan, qkv_bias, fused), 2)
    lines += ["", *_indent(_signature())]
    lines += _indent(_forward(plan, fused), 2)
    return "\n".join(lines) + "\n"


def parts(plan: Plan, text: str) -> tuple[Any, ...]:
    """The runtime functions and the primitives' classes that a source of a plan uses."""
    candidates: tuple[Callable[..., Any], ...] = (
        share,
        key_width,
        runtime.split_heads,
        runtime.merge_heads,
        runtime.repeat_heads,
        runtime.visible_keys,
        runtime.dot_product_attention,
        windows.windowed_keys,
        windows.window_blocks,
        *(step.primitive.module for step in plan.steps),
    )
    called = [f for f in candidates if re.search(rf"\b{f.__name__}\(", text)]
    return tuple(dict.fromkeys(called))


def import_lines(plan: Plan, text: str) -> list[str]:
    """Imports under which a source of a plan runs inside this package."""
    lines = {f"from {item.__module__} import {item.__name__}" for item in parts(plan, text)}
    return ["import torch", "from torch import Tensor, nn", "", *sorted(lines)]


def _constructor(plan: Plan, qkv_bias: bool, fused: Fused) -> list[str]:
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
    hidden = {part.index for pair in fused.values() for part in pair}
    for step in plan.steps:
        if step.index in fused:
            lines.append(f"self.scale_{step.index} = {_scale(fused[step.index][0])}")
        elif step.index not in hidden:
            lines.append(_build(step, bias))
    if plan.genome.projections.has_wo:
        lines.append(f"self.wo = nn.Linear({_merged(plan)}, dim)")
    return lines


def _scale(score: Step) -> str:
    width = _width("all" if score.width == MODEL else score.width)
    return f"({width}) ** -0.5"


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


def _forward(plan: Plan, fused: Fused) -> list[str]:
    lines = []
    if plan.unsafe:
        lines += [
            "if is_causal:",
            f'    raise ValueError("{", ".join(plan.unsafe)} sees later tokens: not causal")',
        ]
    body = _windowed(plan, fused) if plan.is_windowed else _plain(plan, fused)
    out = plan.steps[-1].variable
    is_sum = plan.genome.projections.merge == "sum"
    merged = f"{out}.sum(dim=1)" if is_sum else f"merge_heads({out})"
    return [
        *lines,
        *body,
        f"return self.wo({merged})" if plan.genome.projections.has_wo else f"return {merged}",
    ]


def _plain(plan: Plan, fused: Fused) -> list[str]:
    """Every call on the whole sequence."""
    hidden = {part.index for pair in fused.values() for part in pair}
    asking = [s for s in plan.steps if "mask" in s.primitive.extras and s.index not in hidden]
    # Fused attention is quicker under "causal" as a word than as a mask.
    causal = "is_causal" if asking or not fused else "False"
    lines = []
    if asking or fused:
        lines.append(f"mask = visible_keys(x, attn_mask, key_padding_mask, {causal})")
    lines += [_read(stream) for stream in plan.streams]
    for step in plan.steps:
        if step.index in fused:
            score = fused[step.index][0]
            call = _fused_call(step, score, [] if asking else ["is_causal"])
            lines += _written(step.variable, *call)
        elif step.index not in hidden:
            lines += _written(step.variable, *_call(step))
    return lines


def _windowed(plan: Plan, fused: Fused) -> list[str]:
    """Calls about tokens on the whole sequence; those about pairs block by block if they can."""
    seen = plan.genome.visibility
    masks = ["x", "attn_mask", "key_padding_mask", "is_causal"]
    limits = [*masks, f"window={seen.window}", f"global_tokens={seen.global_tokens}"]
    lines = []
    if any("mask" in s.primitive.extras and not s.is_paired for s in plan.steps):
        lines += _written("seen", "visible_keys", masks)
    if not plan.is_blockwise:
        lines += _written("mask", "windowed_keys", limits)
    lines += [_read(stream) for stream in plan.streams]
    for stage in range(max(step.stage for step in plan.steps) + 1):
        own = [step for step in plan.steps if step.stage == stage]
        pairs = [step for step in own if step.is_paired]
        for step in own:
            if not step.is_paired or not plan.is_blockwise:
                call = _call(step, "mask" if step.is_paired else "seen")
                lines += _written(step.variable, *call)
        if pairs and plan.is_blockwise:
            lines += _blocks(pairs, fused, limits)
    return lines


def _blocks(steps: list[Step], fused: Fused, limits: list[str]) -> list[str]:
    """A loop over blocks of queries, and what it aggregates put together again."""
    hidden = {part.index for pair in fused.values() for part in pair}
    sums = [step.variable for step in steps if step.variable.startswith(Kind.TOKENS)]
    lines = [f"{name}_blocks = []" for name in sums]
    lines += _written("blocks", "window_blocks", limits)
    lines.append("for rows, keys, mask in blocks:")
    for step in steps:
        if step.index in fused:
            call = _fused_call(step, fused[step.index][0], [], is_block=True)
        elif step.index not in hidden:
            call = _call(step, "mask", is_block=True)
        else:
            continue
        lines += _indent(_written(step.variable, *call))
        if step.variable in sums:
            lines.append(f"    {step.variable}_blocks.append({step.variable})")
    return lines + [f"{name} = torch.cat({name}_blocks, dim=2)" for name in sums]


def _written(target: str, function: str, arguments: list[str]) -> list[str]:
    """A call, on one line where that is short."""
    line = f"{target} = {function}({', '.join(arguments)})"
    if len(line) <= LINE:
        return [line]
    return [f"{target} = {function}(", *(f"    {a}," for a in arguments), ")"]


def _read(stream: Stream) -> str:
    source = f"self.w{stream.name}(x)" if stream.is_projected else "x"
    return f"{stream.name} = split_heads({source}, {_heads(stream.type.heads, 'self.heads')})"


def _call(step: Step, mask: str = "mask", *, is_block: bool = False) -> tuple[str, list[str]]:
    """The function that a step calls, and its arguments."""
    arguments = _arguments(step, is_block)
    given = {"x": "x[:, rows]" if is_block else "x", "mask": mask}
    arguments += [f"{name}={given[name]}" for name in step.primitive.extras]
    if is_block and step.primitive.is_positional:
        arguments.append("start=rows.start - keys.start")
    return f"self.{step.module}", arguments


def _fused_call(
    step: Step, score: Step, rest: list[str], *, is_block: bool = False
) -> tuple[str, list[str]]:
    """The same for an aggregation that is fused with its dot product and softmax."""
    values = _arguments(step, is_block)[1]
    arguments = [*_arguments(score, is_block), values, "mask", f"self.scale_{step.index}"]
    return "dot_product_attention", arguments + rest


def _arguments(step: Step, is_block: bool) -> list[str]:
    ports = step.primitive.signatures[0].inputs
    return [
        _operand(operand, step, port.name if is_block else None)
        for operand, port in zip(step.operands, ports, strict=True)
    ]


def _operand(operand: Operand, step: Step, port: str | None) -> str:
    """What a call reads; of a block the queries' rows or the keys' where it reads tokens."""
    text = operand.variable
    if port in STREAM_OF_PORT:
        text += "[:, :, rows]" if port == "query" else "[:, :, keys]"
    if not operand.is_repeated:
        return text
    return f"repeat_heads({text}, {_heads(step.heads, 'self.heads')})"


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
