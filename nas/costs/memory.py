"""The size of the cache with which a mechanism is decoded token by token.

The cache holds:

- Rows, one per token: keys and values, or the streams from which they are computed if that takes
  less memory. A mechanism with a window keeps the rows of its window and of the global tokens.
- Sums of keys times values, for linear attention and means.
- The states of steps that mix a token with earlier ones. A step without such a state keeps the rows
  of its operands, except queries, for all tokens.
"""

from __future__ import annotations

from typing import Final

from nas.compiler.lowering import Lowered, distributed, live, lower
from nas.compiler.plan import Plan, Step
from nas.costs import CostContext
from nas.genome import ModelSizes, Ref, head_count

BYTES_PER_NUMBER: Final = 2  # caches are kept in 16 bits


def kv_cache_bytes_per_token(plan: Plan, context: CostContext) -> float:
    """Return the bytes of the smallest cache per token that it holds, at 16 bits a number.

    States, and sums over tokens, have 32 bits. The result is the size of keys and values if a
    primitive sees later tokens, so that the mechanism cannot be decoded.
    """
    plan = distributed(plan)
    sizes = context.sizes._replace(tokens=context.cached_tokens or context.sizes.tokens)
    mask, held = plan.genome.visibility, sizes.tokens  # held: the tokens whose rows are cached
    if mask.window is not None:
        held = min(held, mask.window + mask.global_tokens)
    calls = {} if plan.is_windowed else lower(plan)  # those below run as sums over the keys
    sums = {i: call for i, call in calls.items() if call.is_linear or call.score is None}
    states, again = 0, frozenset[Ref]()  # again: operands without a state to replace them
    for step in plan.steps:
        if step.primitive.needs_all_tokens and not step.is_paired:
            state = _state(plan, step, sizes)
            states += state or 0
            if state is None and step.primitive.is_causal_safe(step.params):
                again |= {o.ref for o in step.operands if o.port.name != "query"}
    held = sizes.tokens if again else held
    numbers = []
    for each in (sums, {}):
        called = frozenset(step.index for step in plan.steps) & live(plan, each) - each.keys()
        summed = sum(_sum_numbers(plan, call, sizes) for call in each.values())
        rows = (_read_rows(plan, called), sources_of(plan, called))
        numbers.append(min(_row(plan, refs | again, sizes) for refs in rows) * held + 2 * summed)
    return BYTES_PER_NUMBER * (min(numbers) + states) / sizes.tokens


def _state(plan: Plan, step: Step, sizes: ModelSizes) -> int | None:
    history = step.primitive.history(step.params)
    if history is None:
        state = step.primitive.state(plan.call_sizes(step, sizes), step.params)
        return state and 2 * state  # two numbers of 16 bits each
    return history * sum(o.type.token_width(sizes.dim, sizes.heads) for o in step.operands)


def sources_of(plan: Plan, called: frozenset[int]) -> frozenset[Ref]:
    """Return the streams and steps from which the steps in ``called`` compute keys and values."""
    sources: dict[Ref, frozenset[Ref]] = {s.name: frozenset({s.name}) for s in plan.streams}
    for step in plan.steps:
        is_by_token = not step.is_paired and not step.primitive.needs_all_tokens
        if is_by_token and "x" not in step.primitive.extras:
            sources[step.index] = frozenset().union(*(sources[o.ref] for o in step.operands))
        else:
            sources[step.index] = frozenset({step.index})
    return frozenset().union(*(sources[ref] for ref in _read_rows(plan, called)))


def _read_rows(plan: Plan, called: frozenset[int]) -> frozenset[Ref]:
    steps = (step for step in plan.steps if step.index in called)
    return frozenset(o.ref for step in steps for o in step.operands if o.port.is_past)


def _row(plan: Plan, refs: frozenset[Ref], sizes: ModelSizes) -> int:
    raw = {s.name for s in plan.streams if not s.is_projected and s.name in refs}
    types = {s.name: s.type for s in plan.streams} | {s.index: s.type for s in plan.steps}
    kept = [types[ref] for ref in refs - raw]
    # Sums of gates take two numbers of 16 bits, which are too few for sums over long sequences.
    row = sum(t.token_width(sizes.dim, sizes.heads) * (1 + t.kind.is_gates) for t in kept)
    return row + (sizes.dim if raw else 0)


def _sum_numbers(plan: Plan, call: Lowered, sizes: ModelSizes) -> int:
    width = call.sum.operands[1].type.channels(sizes.dim, sizes.heads) + call.is_ratio
    heads = max(head_count(label, sizes.heads) for _, label in call.operands[-2:])
    if call.score is None:
        return heads * width
    return heads * call.features(plan.call_sizes(call.score, sizes).width) * width
