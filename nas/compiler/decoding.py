"""The method ``decode`` of exported classes, which continues a text from a cache.

In the method, sums of forget gates begin at the first new token, so that states need no earlier
sums. Steps on pairs of tokens get sums from the first cached token on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import torch
from jaxtyping import Float
from torch import Tensor

from nas.compiler.inlining import call_line, indented
from nas.compiler.kernels.attention import by_last, repeat_heads, with_ones
from nas.compiler.kernels.quadratic import quadratic_features
from nas.compiler.lowering import live
from nas.compiler.source_parts import window_lines
from nas.genome.primitives.gated import decayed_products, empty_state, next_state, read_state
from nas.genome.primitives.tensors import Query, QueryGates, Sums

if TYPE_CHECKING:
    from nas.compiler.lowering import Lowered
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


def add_gates(cache: dict[str, Tensor], name: str, gates: Tensor) -> Tensor:
    """Add sums of the new tokens' gates to those that the cache holds, and return all of them."""
    return add_tokens(cache, name, gates + cache[name][:, :, -1:] if name in cache else gates)


def with_past(
    state: Float[Tensor, "b m w v"] | None,
    query: Query,
    key: Float[Tensor, "b g q w"],
    values: Float[Tensor, "b s q v"],
    *gates: QueryGates,
) -> tuple[Sums, Float[Tensor, "b m w v"]]:
    """Return linear attention, which is not divided, after earlier tokens, and the next state.

    Products of pairs are computed in chunks, each of which continues from the state before it.
    """
    heads, groups, sums = query.shape[1], max(key.shape[1], values.shape[1]), []
    key, values = repeat_heads(key, groups), repeat_heads(values, groups)
    state = empty_state(key, values) if state is None else state
    (passed,) = gates or (torch.zeros_like(query[:, :1, :, :1]),)
    for i in range(0, query.shape[2], 64):
        q, k, v, c = (x[:, :, i : i + 64] for x in (query, key, values, passed))
        c = c - passed[:, :, i - 1 : i] if i else c
        new = decayed_products(q, repeat_heads(k, heads), c, c).tril() @ repeat_heads(v, heads)
        sums.append(new + read_state(repeat_heads(state, heads), q, c))
        state = next_state(state, k, v, c)
    return torch.cat(sums, dim=2).to(values.dtype), state


def not_decodable(plan: Plan) -> tuple[str, ...]:
    """Return the primitives that need all earlier tokens, and declare no recurrence."""
    return tuple(
        step.primitive.name
        for step in plan.steps
        if step.primitive.needs_all_tokens
        and (step.is_paired or step.primitive.history(step.params) is None)
        and step.primitive.recur is None
    )


def decode_lines(source: Source) -> tuple[list[str], set[int]]:
    """Return the lines of the method, and the steps whose modules it calls."""
    plan, fused = source.plan, {call.sum.index: call for call in source.fused}
    calls = {} if plan.is_windowed else source.calls
    # Linear attention and means, which need no weights.
    sums = {i: call for i, call in calls.items() if call.is_linear or call.score is None}
    needed = live(plan, fused | sums)
    steps = [step for step in plan.steps if step.index in needed]
    lines, cached = [], []
    for step in steps:
        if step.index in sums:
            lines += _sum_lines(source, sums[step.index])
            continue
        call = fused.get(step.index)
        operands = [o for o, _ in call.operands] if call else step.operands
        past = [o for o in operands if _past(o) is not o] if step.is_paired else []
        for name, is_gates in {o.variable: o.type.kind.is_gates for o in past}.items():
            if name not in cached:
                cached.append(name)
                add = source.use(add_gates if is_gates else add_tokens)
                lines.append(f'past_{name} = {add}(cache, "{name}", {name})')
        if call is not None:
            assert call.score is not None, "fused attention has a score"
            call = replace(call, score=_of_past(call.score), sum=_of_past(call.sum))
            lines.append(source.fused_line(call, is_causal=False))
        elif step.is_paired:
            texts = {"x": "x", "mask": "mask", "start": "start"}
            lines.append(source.step_line(_of_past(step), texts))
        else:
            lines += _token_lines(source, step)
    body = [*_first_lines(source, cached, lines), *source.stream_lines(needed), *lines]
    modules = {step.index for step in steps} - fused.keys() - sums.keys()
    return ["", *indented(_HEAD), *indented([*body, source.return_line()], 2)], modules


def _first_lines(source: Source, cached: list[str], lines: list[str]) -> list[str]:
    """Return the lines that count tokens and compute a mask, as far as later lines use them."""
    if cached:
        mask = ["mask = torch.ones(n, start + n, dtype=torch.bool, device=x.device).tril(start)"]
        if source.plan.is_windowed:
            mask = window_lines(source, "mask", "start + n", "place[start:, None]", "True")
        return [f'start, n = cache["{cached[0]}"].shape[2] if cache else 0, x.shape[1]', *mask]
    if any("start" in line for line in lines):  # the cache counts tokens without features
        count = f'{source.use(add_tokens)}(cache, "x", x[:, None, :, :0]).shape[2]'
        return ["n = x.shape[1]", f"start = {count} - n"]
    return ["n = x.shape[1]"] if any("-n:" in line for line in lines) else []


def _sum_lines(source: Source, call: Lowered) -> list[str]:
    """Return the lines of linear attention or a mean, of which the cache keeps a state."""
    name, mean = call.sum.variable, call.sum.operands[1]
    operands = [source.with_heads(*each) for each in call.operands]
    if call.score is None:  # the scores are 1
        operands = [f"torch.ones_like({operands[0]}[..., :1])"] * 2 + operands
    else:
        operands[0] += f" * {source.scale(call.score)}"
    if call.is_quadratic:
        use, is_square = source.use(quadratic_features), call.is_square
        operands[:2] = [f"{use}({each}, {is_square})" for each in operands[:2]]
    if call.is_ratio:
        operands[2] = f"{source.use(with_ones)}({operands[2]})"
    lines = [_state_line(source, call.sum, with_past, operands)]
    if call.score is None or call.is_divided:
        count = "torch.arange(start + 1, start + n + 1, device=x.device)[:, None]"
        lines.append(f"{name} = {name} / {count}")
    if call.is_ratio:
        lines.append(f"{name} = {source.use(by_last)}({name})")
    if call.score is None and mean.is_repeated:
        lines.append(f"{name} = {source.with_heads(mean, call.sum.heads, name)}")
    return lines


def _token_lines(source: Source, step: Step) -> list[str]:
    """Return the lines of a step from tokens to tokens or gates."""
    count = step.primitive.history(step.params)
    texts = {"x": "x", "mask": "None", "start": "0" if step.type.kind.is_gates else "start"}
    if count == 0 or not step.primitive.needs_all_tokens:
        return [source.step_line(step, texts)]
    if count is None:
        arguments = [*source.arguments(step), *["x=x"] * ("x" in step.primitive.extras)]
        return [_state_line(source, step, step.primitive.recur, arguments, f"self.{step.module}")]
    operands = tuple(replace(o, variable=f"{o.variable}_{step.index}") for o in step.operands)
    lines, add = [], source.use(add_tokens)
    for old, new in zip(step.operands, operands, strict=True):
        lines.append(f'{new.variable} = {add}(cache, "{new.variable}", {old.variable})')
        lines.append(f'cache["{new.variable}"] = {new.variable}[:, :, -{count}:]')
    step = replace(step, operands=operands)
    return [*lines, source.step_line(step, texts) + "[:, :, -n:]"]


def _state_line(source: Source, step: Step, function: Any, operands: list[str], *first: str) -> str:
    """Return the call of a function of a state, whose results are a step's and the next state."""
    state = f"state_{step.index}"
    arguments = [*first, f'cache.get("{state}")', *operands]
    return call_line(f'{step.variable}, cache["{state}"]', source.use(function), arguments)


def _of_past(step: Step) -> Step:
    """Return the step with operands at all tokens where it needs them."""
    return replace(step, operands=tuple(map(_past, step.operands)))


def _past(operand: Operand) -> Operand:
    """Return an operand of a step on pairs at all tokens, if the step needs it so."""
    is_query, is_gates = operand.port.is_query, operand.type.kind.is_gates
    if operand.is_paired or (is_query and not is_gates):
        return operand
    return replace(operand, variable=f"past_{operand.variable}" + "[:, :, start:]" * is_query)
