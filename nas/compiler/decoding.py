"""The method ``decode`` of exported classes, which continues a text from a cache."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from nas.compiler.inlining import indented
from nas.compiler.lowering import live
from nas.compiler.source_parts import window_lines

if TYPE_CHECKING:
    from nas.compiler.plan import Operand, Plan, Step
    from nas.compiler.source import Source

_HEAD: Final = [
    "def decode(self, x: Tensor, cache: dict[str, Tensor]) -> Tensor:",
    '    """Return the outputs of the next tokens x of a causal text, and add them to the cache.',
    "",
    "    Each layer has a cache of its own, which is empty before the first token. Axis 0 of its",
    "    tensors is the batch. They are replaced, never changed, so that dict(cache) is a copy.",
    '    """',
]


def add_tokens(cache: dict[str, Tensor], name: str, tokens: Tensor) -> Tensor:
    """Add tokens to those that the cache holds, and return all of them."""
    # A copy, since the tokens may be a view of the caller's x.
    cache[name] = torch.cat((cache[name], tokens), dim=2) if name in cache else tokens.clone()
    return cache[name]


def add_recent(cache: dict[str, Tensor], name: str, tokens: Tensor, count: int) -> Tensor:
    """Return the cached tokens, then the new ones; of these the cache keeps the last ``count``."""
    tokens = add_tokens(cache, name, tokens)
    cache[name] = tokens[:, :, -count:]
    return tokens


def add_sum(cache: dict[str, Tensor], name: str, sums: Tensor) -> Tensor:
    """Return sums up to each token plus the cached sum; the cache keeps the last result."""
    if name in cache:
        sums = sums + cache[name]
    cache[name] = sums[:, :, -1:]
    return sums


def not_decodable(plan: Plan) -> tuple[str, ...]:
    """Return the primitives for which a cache of tokens and last sums is not enough."""
    return tuple(
        step.primitive.name
        for step in plan.steps
        if step.primitive.needs_all_tokens
        and (step.is_paired or step.primitive.history(step.params) is None)
    )


def decode_lines(source: Source) -> tuple[list[str], set[int]]:
    """Return the lines of the method, and the steps whose modules it calls."""
    plan, fused = source.plan, {call.sum.index: call for call in source.fused}
    needed = live(plan, fused)
    steps = [step for step in plan.steps if step.index in needed]
    lines, cached = [], []
    for step in steps:
        call = fused.get(step.index)
        operands = [o for o, _ in call.operands] if call else step.operands
        past = [o.variable for o in operands if _is_past(o)] if step.is_paired else []
        for name in dict.fromkeys(past):
            if name not in cached:
                cached.append(name)
                lines.append(f'past_{name} = {source.use(add_tokens)}(cache, "{name}", {name})')
        if call is not None:
            assert call.score is not None, "fused attention has a score"
            call = replace(call, score=_of_past(call.score), sum=_of_past(call.sum))
            lines.append(source.fused_line(call, is_causal=False))
        elif step.is_paired:
            texts = {"x": "x", "mask": "mask", "start": "start"}
            lines.append(source.step_line(_of_past(step), texts))
        else:
            lines += _token_lines(source, step)
    length = f'cache["{cached[0]}"].shape[2] if cache else 0' if cached else "0"
    first = [f"start, n = {length}, x.shape[1]", *_mask_lines(source)]
    body = [*first, *source.stream_lines(needed), *lines, source.return_line()]
    return ["", *indented(_HEAD), *indented(body, 2)], {s.index for s in steps} - fused.keys()


def _mask_lines(source: Source) -> list[str]:
    if source.plan.is_windowed:
        return window_lines(source, "mask", "start + n", "place[start:, None]", "True")
    return ["mask = torch.ones(n, start + n, dtype=torch.bool, device=x.device).tril(start)"]


def _token_lines(source: Source, step: Step) -> list[str]:
    """Return the lines of a step from tokens to tokens or gates."""
    texts = {"x": "x", "mask": "None", "start": "start"}
    if not step.primitive.needs_all_tokens:
        return [source.step_line(step, texts)]
    name, count, lines, last = step.variable, step.primitive.history(step.params), [], ""
    if count:
        operands = [replace(o, variable=f"{o.variable}_{step.index}") for o in step.operands]
        for old, new in zip(step.operands, operands, strict=True):
            call = f'{source.use(add_recent)}(cache, "{new.variable}", {old.variable}, {count})'
            lines.append(f"{new.variable} = {call}")
        step, last = replace(step, operands=tuple(operands)), "[:, :, -n:]"
    lines.append(source.step_line(step, texts) + last)
    if step.type.kind.is_gates:  # sums from the first of these tokens on
        lines.append(f'{name} = {source.use(add_sum)}(cache, "sum of {name}", {name})')
    return lines


def _is_past(operand: Operand) -> bool:
    """Whether a step on pairs needs the operand at all tokens."""
    return not (operand.is_paired or operand.port.is_query)


def _of_past(step: Step) -> Step:
    """Return the step with operands at all tokens where it needs them."""
    return replace(
        step,
        operands=tuple(
            replace(o, variable=f"past_{o.variable}") if _is_past(o) else o for o in step.operands
        ),
    )
