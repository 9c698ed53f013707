"""The method ``decode`` of exported classes, which continues a text from a cache."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from nas.compiler.inlining import indented
from nas.compiler.lowering import live
from nas.compiler.masks import in_window

if TYPE_CHECKING:
    from nas.compiler.plan import Plan, Step
    from nas.compiler.source import Source

_HEAD: Final = [
    "def decode(self, x: Tensor, cache: dict[str, Tensor]) -> Tensor:",
    '    """Return the outputs of further tokens x of a causal text, and add them to the cache.',
    "",
    "    The cache is an empty dictionary before the first token. Its tensors are (batch, ...).",
    '    """',
]


def extended(cache: dict[str, Tensor], name: str, tokens: Tensor) -> Tensor:
    """Return the cached tokens and the new ones, which the cache then holds."""
    if name in cache:
        tokens = torch.cat((cache[name], tokens), dim=2)
    cache[name] = tokens
    return tokens


def with_last(cache: dict[str, Tensor], name: str, tokens: Tensor, count: int) -> Tensor:
    """Return the tokens after up to ``count`` earlier ones; the cache then holds the last ones."""
    tokens = extended(cache, name, tokens)
    cache[name] = tokens[:, :, -count:]
    return tokens


def continued(cache: dict[str, Tensor], name: str, sums: Tensor) -> Tensor:
    """Return sums up to each token plus the cached one; the cache then holds the last sum."""
    if name in cache:
        sums = sums + cache[name]
    cache[name] = sums[:, :, -1:]
    return sums


def can_decode(plan: Plan) -> bool:
    """Whether new tokens need only rows and sums of earlier ones, and no other state."""
    mixers = [step for step in plan.steps if step.primitive.needs_all_tokens]
    return not plan.unsafe and all(
        not step.is_paired and step.primitive.history(step.params) is not None for step in mixers
    )


def decode_lines(source: Source) -> tuple[list[str], set[int]]:
    """Return the lines of the method, and the steps whose modules it calls."""
    plan, fused = source.plan, {call.sum.index: call for call in source.fused}
    needed = live(plan, fused)
    steps = [step for step in plan.steps if step.index in needed]
    lines, kept = [], []
    for step in steps:
        reads = [o for o, _ in fused[step.index].operands] if step.index in fused else step.operands
        is_paired = step.is_paired or step.index in fused
        for name in dict.fromkeys(o.variable for o in reads if o.port.is_past and is_paired):
            if name not in kept:
                kept.append(name)
                lines.append(f'past_{name} = {source.use(extended)}(cache, "{name}", {name})')
        if step.index in fused:
            call = fused[step.index]
            assert call.score is not None, "fused attention has a score"
            call = replace(call, score=_of_past(call.score), sum=_of_past(call.sum))
            lines.append(source.fused_line(call, is_causal=False))
        else:
            lines += _step_lines(source, step)
    masks = _mask_lines(source)
    first = [f'start, n = cache["{kept[0]}"].shape[2] if cache else 0, x.shape[1]']
    body = [*first, *masks, *source.stream_lines(needed), *lines, source.return_line()]
    called = {step.index for step in steps} - fused.keys()
    return ["", *indented(_HEAD), *indented(body, 2)], called


def _mask_lines(source: Source) -> list[str]:
    visibility = source.plan.genome.visibility
    if visibility.window is None:
        return ["mask = torch.ones(n, start + n, dtype=torch.bool, device=x.device).tril(start)"]
    limits = f"{visibility.window}, {visibility.global_tokens}, True"
    return [
        "place = torch.arange(start + n, device=x.device)",
        f"mask = {source.use(in_window)}(place[start:, None], place, {limits})",
    ]


def _step_lines(source: Source, step: Step) -> list[str]:
    texts = {"x": "x", "mask": "mask" if step.is_paired else "None", "start": "start"}
    if step.is_paired:
        return [source.step_line(_of_past(step), texts)]
    if not step.primitive.needs_all_tokens:
        return [source.step_line(step, texts)]
    name, count, lines, last = step.variable, step.primitive.history(step.params), [], ""
    if count:
        operands = [replace(o, variable=f"{o.variable}_{step.index}") for o in step.operands]
        for old, new in zip(step.operands, operands, strict=True):
            call = f'{source.use(with_last)}(cache, "{new.variable}", {old.variable}, {count})'
            lines.append(f"{new.variable} = {call}")
        step, last = replace(step, operands=tuple(operands)), "[:, :, -n:]"
    lines.append(source.step_line(step, texts) + last)
    if step.type.kind.is_gates:
        lines.append(f'{name} = {source.use(continued)}(cache, "sum of {name}", {name})')
    return lines


def _of_past(step: Step) -> Step:
    """Return the step with the rows of all tokens in place of keys and values."""
    return replace(
        step,
        operands=tuple(
            replace(o, variable=f"past_{o.variable}") if o.port.is_past else o
            for o in step.operands
        ),
    )
