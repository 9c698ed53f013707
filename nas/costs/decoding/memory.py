"""The cache of token-by-token decoding: its contents and its size.

The cache holds:

- Rows, one per token: keys and values, or the streams from which they are computed if that takes
  less memory. Streams without projection are the token itself, stored once. A mechanism with a
  window keeps the rows of its window and of the global tokens.
- Running sums of key features times values, for linear attention and means; their size is constant.
- The states of steps that mix a token with earlier ones; their size is constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from nas.common.errors import GenomeError
from nas.compiler.lowering import live, lower
from nas.compiler.plan import Plan, Step
from nas.costs.macs import Call, token_width
from nas.genome import ModelSizes, Ref

BYTES_PER_NUMBER: Final = 2  # caches are kept in 16 bits


@dataclass(frozen=True)
class Memory:
    """The contents of a cache.

    Attributes:
        rows: the streams (q, k, v) and steps whose values are cached, with a row per token.
        sums: the calls (aggregations fused with their scores) that a decoder computes from running
            sums, by the index of the aggregation.
        states: the steps with a state that a decoder continues, by index.
        called: the indices of the steps that a decoder calls; running sums replace all other steps.
    """

    plan: Plan
    rows: frozenset[Ref]
    sums: Mapping[int, Call]
    states: Mapping[int, Step]
    called: frozenset[int]

    @property
    def raw(self) -> set[Ref]:
        """The streams in ``rows`` that have no projection, so that the token itself is cached."""
        return {s.name for s in self.plan.streams if not s.is_projected and s.name in self.rows}

    @property
    def names(self) -> dict[Ref, str]:
        """The name of the cached tensor of each stream and step in ``rows``.

        All streams without projection share the tensor ``x`` of tokens.
        """
        names: dict[Ref, str] = {s.index: s.variable for s in self.plan.steps}
        names |= {s.name: s.name if s.is_projected else "x" for s in self.plan.streams}
        return {ref: names[ref] for ref in self.rows}

    def held(self, tokens: int) -> int:
        """Return the number of tokens whose rows are cached after ``tokens`` tokens."""
        mask = self.plan.genome.visibility
        return tokens if mask.window is None else min(tokens, mask.window + mask.global_tokens)

    def row(self, sizes: ModelSizes) -> int:
        """Return the number of cached elements per token."""
        row = sum(self._width(ref, sizes) for ref in self.rows - self.raw)
        return row + (sizes.dim if self.raw else 0)

    def numbers(self, sizes: ModelSizes) -> int:
        """Return the number of cached elements after ``sizes.tokens`` tokens of one sequence."""
        sums = sum(call.sum_numbers(self.plan.steps[i]) for i, call in self.sums.items())
        states = sum(state_numbers(self.plan, step, sizes) or 0 for step in self.states.values())
        return self.held(sizes.tokens) * self.row(sizes) + sums + states

    def _width(self, ref: Ref, sizes: ModelSizes) -> int:
        streams = {stream.name: stream.type for stream in self.plan.streams}
        type_ = streams[ref] if isinstance(ref, str) else self.plan.steps[ref].type
        return token_width(type_, sizes.dim, sizes.heads)


def memory_of(plan: Plan, sizes: ModelSizes) -> Memory:
    """Return the contents of the cache that is smallest after ``sizes.tokens`` tokens.

    If caches have equal sizes, sums are preferred to rows, and rows of keys and values to rows from
    which keys and values would be recomputed.
    """
    states = {
        step.index: step for step in plan.steps if state_numbers(plan, step, sizes) is not None
    }
    summed = {i: c for i, c in lower(plan).items() if Call(plan, c, sizes).has_sums}
    caches: list[Memory] = []
    for fused in (summed, {}) if summed else ({},):
        sums = {s.index: Call(plan, c, sizes) for c in fused.values() for s in c.sums}
        called = frozenset(range(len(plan.steps))) & live(plan, fused) - set(sums)
        rows = (_read_rows(plan, called), sources_of(plan, called))
        caches += [Memory(plan, refs, sums, states, called) for refs in rows]
    return min(caches, key=lambda cache: cache.numbers(sizes))


def kv_cache_bytes_per_token(plan: Plan, sizes: ModelSizes) -> float:
    """Return the bytes per token of a ``Decoder``'s cache after ``sizes.tokens`` tokens.

    Every element counts as 16 bits, although a decoder stores running sums in 32 bits. If the
    mechanism sees later tokens and cannot be decoded, the result is the size of its keys and
    values.
    """
    return BYTES_PER_NUMBER * memory_of(plan, sizes).numbers(sizes) / sizes.tokens


def shares_heads(step: Step) -> bool:
    """Return whether a step multiplies with keys or values that several query heads share."""
    repeated = [operand.is_repeated for operand in step.operands]
    return step.primitive.is_plain_product and repeated == [False, True]


def check_decodable(plan: Plan) -> None:
    """Raise GenomeError if a primitive sees later tokens, or has no state to continue from."""
    if names := undecodable(plan):
        raise GenomeError(
            f"{', '.join(sorted(names))}: reads later tokens, or needs all tokens at once, so "
            "that no cache continues it; expected a mechanism without, or primitives that declare "
            "a state."
        )


def undecodable(plan: Plan) -> set[str]:
    """Return the names of the primitives that cannot be decoded token by token."""
    steps = plan.steps
    windowed = (s for s in steps if s.primitive.needs_all_keys and plan.is_windowed)
    stateless = (
        step
        for step in steps
        if step.primitive.needs_all_tokens and state_numbers(plan, step, _ANY) is None
    )
    return {*plan.unsafe, *(step.primitive.name for step in (*windowed, *stateless))}


_ANY: Final = ModelSizes(64, 8, 1, 64)


def state_numbers(plan: Plan, step: Step, sizes: ModelSizes) -> int | None:
    """Return the number of elements of a step's state for one sequence.

    The result is None if the step reads only the current token, or has no such state.
    """
    if not step.primitive.needs_all_tokens or step.is_paired:
        return None
    called = plan.call_sizes(step, sizes.dim, sizes.heads, sizes.tokens)
    return step.primitive.state(called, step.params)


def _read_rows(plan: Plan, called: frozenset[int]) -> frozenset[Ref]:
    steps = (step for step in plan.steps if step.index in called)
    return frozenset(o.ref for step in steps for o in step.operands if o.port.is_past)


def sources_of(plan: Plan, called: frozenset[int]) -> frozenset[Ref]:
    """Return the streams and steps from whose values keys and values are computed token by token.

    Args:
        plan: the plan of the mechanism.
        called: the indices of the steps that read these keys and values.
    """
    sources: dict[Ref, frozenset[Ref]] = {s.name: frozenset({s.name}) for s in plan.streams}
    for step in plan.steps:
        is_by_token = not step.is_paired and not step.primitive.needs_all_tokens
        if is_by_token and "x" not in step.primitive.extras:
            sources[step.index] = frozenset().union(*(sources[o.ref] for o in step.operands))
        else:
            sources[step.index] = frozenset({step.index})
    return frozenset().union(*(sources[ref] for ref in _read_rows(plan, called)))
