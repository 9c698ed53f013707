"""The cache of token-by-token decoding: its contents and its size.

The cache holds:
- Rows, one per token: keys and values, or the streams from which they are computed if that takes
  less memory (streams without projection are the token itself, stored once). A window keeps its
  tokens and the global tokens.
- Running sums of key features times values, for linear attention and means; their size is constant.
- The last inputs of steps that read a few earlier tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from nas.common.errors import GenomeError
from nas.compiler.lowering import live, lower
from nas.compiler.plan import Operand, Plan, Step
from nas.costs.macs import Call, numbers
from nas.genome import ModelSizes, Ref

BYTES_PER_NUMBER: Final = 2  # caches are kept in 16 bits


@dataclass(frozen=True)
class Memory:
    """The contents of a cache.

    Attributes:
        rows: streams and nodes with a cached row per token.
        sums: the calls with running sums, by index of their aggregations.
        inputs: the number of cached inputs, by index of the steps that read earlier inputs.
        called: indices of the steps that are called; running sums replace the others.
    """

    plan: Plan
    rows: frozenset[Ref]
    sums: Mapping[int, Call]
    inputs: Mapping[int, int]
    called: frozenset[int]

    @property
    def raw(self) -> set[Ref]:
        """The rows that are the tokens themselves."""
        return {s.name for s in self.plan.streams if not s.is_projected and s.name in self.rows}

    @property
    def names(self) -> dict[Ref, str]:
        """The cache entry of each row; streams without projection share the entry ``x``."""
        names: dict[Ref, str] = {s.index: s.variable for s in self.plan.steps}
        names |= {s.name: s.name if s.is_projected else "x" for s in self.plan.streams}
        return {ref: names[ref] for ref in self.rows}

    def held(self, tokens: int) -> int:
        """The number of cached rows after ``tokens`` tokens."""
        mask = self.plan.genome.visibility
        return tokens if mask.window is None else min(tokens, mask.window + mask.global_tokens)

    def row(self, sizes: ModelSizes) -> int:
        """The number of cached elements per token."""
        row = sum(self._numbers(ref, sizes) for ref in self.rows - self.raw)
        return row + (sizes.dim if self.raw else 0)

    def numbers(self, sizes: ModelSizes) -> int:
        """The number of cached elements after ``sizes.tokens`` tokens, for one sequence."""
        sums = sum(call.sum_numbers(self.plan.steps[i]) for i, call in self.sums.items())
        inputs = sum(
            min(count, sizes.tokens) * self._numbers(self.plan.steps[i].operands[0].ref, sizes)
            for i, count in self.inputs.items()
        )
        return self.held(sizes.tokens) * self.row(sizes) + sums + inputs

    def _numbers(self, ref: Ref, sizes: ModelSizes) -> int:
        """The number of elements of a stream or node per token."""
        streams = {stream.name: stream.type for stream in self.plan.streams}
        return numbers(streams[ref] if isinstance(ref, str) else self.plan.steps[ref].type, sizes)


def memory_of(plan: Plan, sizes: ModelSizes) -> Memory:
    """The cache with the fewest elements after ``sizes.tokens`` tokens.

    On ties sums are preferred to rows, and rows of keys and values to rows from which these would
    be recomputed.
    """
    inputs = {step.index: reach for step in plan.steps if (reach := _reach(step)) is not None}
    calls = lower(plan)
    summed = {i: c for i, c in calls.items() if Call(plan, c, sizes).has_sums}
    ways = []
    for fused in (summed, {}) if summed else ({},):
        sums = {s.index: Call(plan, c, sizes) for c in fused.values() for s in c.sums}
        called = frozenset(range(len(plan.steps))) & live(plan, fused) - set(sums)
        rows = (_read_rows(plan, called), sources_of(plan, called))
        ways += [Memory(plan, refs, sums, inputs, called) for refs in rows]
    return min(ways, key=lambda way: way.numbers(sizes))


def kv_cache_bytes_per_token(plan: Plan, sizes: ModelSizes) -> float:
    """Bytes per token of the cache of a ``Decoder`` after a context of ``sizes.tokens``.

    Every element counts as 16 bits, although a decoder stores sums in 32. Mechanisms that see later
    tokens and cannot be decoded count the size of their keys and values.
    """
    return BYTES_PER_NUMBER * memory_of(plan, sizes).numbers(sizes) / sizes.tokens


def is_past(operand: Operand) -> bool:
    """Whether a call reads the operand at all tokens so far."""
    return operand.port.name in ("key", "values")


def shares_heads(step: Step) -> bool:
    """Whether a step is a product with keys or values that several heads share."""
    return step.primitive.is_plain_product and [o.is_repeated for o in step.operands] == [
        False,
        True,
    ]


def check_decodable(plan: Plan) -> None:
    """Check that a mechanism can be decoded.

    Raises:
        GenomeError: the mechanism sees later tokens, or needs all tokens at once.
    """
    if names := refused(plan):
        raise GenomeError(
            f"{', '.join(sorted(names))}: reads later tokens, or needs all tokens at once, so "
            "that no cache continues it; expected a mechanism without."
        )


def refused(plan: Plan) -> set[str]:
    """The primitives that cannot be decoded."""
    whole = (step for step in plan.steps if step.primitive.needs_all_tokens)
    return {*plan.unsafe, *(s.primitive.name for s in whole if s.is_paired or _reach(s) is None)}


def _reach(step: Step) -> int | None:
    """The number of earlier tokens whose inputs a step reads; None if it reads none."""
    return step.primitive.reach(step.params) if step.primitive.needs_all_tokens else None


def _read_rows(plan: Plan, called: frozenset[int]) -> frozenset[Ref]:
    """The streams and nodes that are read as keys and values."""
    steps = (step for step in plan.steps if step.index in called)
    return frozenset(o.ref for step in steps for o in step.operands if is_past(o))


def sources_of(plan: Plan, called: frozenset[int]) -> frozenset[Ref]:
    """The streams and nodes from which keys and values are computed, token by token."""
    sources: dict[Ref, frozenset[Ref]] = {s.name: frozenset({s.name}) for s in plan.streams}
    for step in plan.steps:
        is_own = not step.is_paired and not step.primitive.needs_all_tokens
        if is_own and "x" not in step.primitive.extras:
            sources[step.index] = frozenset().union(*(sources[o.ref] for o in step.operands))
        else:
            sources[step.index] = frozenset({step.index})
    rows = _read_rows(plan, called)
    return frozenset().union(*(sources[ref] for ref in rows))
