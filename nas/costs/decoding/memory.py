"""The cache of token-by-token decoding: its contents, and how many numbers it holds.

- Rows, one for each token: what keys and values are read from, or the streams that these follow
  from where that is less (a stream without projection is the token itself, once). A window holds
  its tokens and the global ones.
- Sums, for linear attention and means: of key features times values. Their size does not grow.
- The last inputs of calls that read a few earlier tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nas.common.errors import GenomeError
from nas.compiler.lowering import live, lower
from nas.costs.macs import Call, numbers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nas.compiler.plan import Operand, Plan, Step
    from nas.genome import ModelSizes, Ref

BYTES_PER_NUMBER: Final = 2  # caches are kept in 16 bits


@dataclass(frozen=True)
class Memory:
    """The contents of a cache.

    Attributes:
        rows: streams and nodes of which each token's row is.
        sums: by index of an aggregation, the call that continues from its sums.
        inputs: by index of a call, of how many earlier tokens it needs the inputs.
        called: the steps that are called as they stand: all but those that sums replace.
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
        """By row, the variable that it is; the tokens themselves are one for all streams."""
        names: dict[Ref, str] = {s.index: s.variable for s in self.plan.steps}
        names |= {s.name: s.name if s.is_projected else "x" for s in self.plan.streams}
        return {ref: names[ref] for ref in self.rows}

    def held(self, tokens: int) -> int:
        """How many tokens there are rows of, after so many."""
        mask = self.plan.genome.visibility
        return tokens if mask.window is None else min(tokens, mask.window + mask.global_tokens)

    def row(self, sizes: ModelSizes) -> int:
        """How many numbers there are of a token."""
        row = sum(self._numbers(ref, sizes) for ref in self.rows - self.raw)
        return row + (sizes.dim if self.raw else 0)

    def numbers(self, sizes: ModelSizes) -> int:
        """How many numbers are held after ``sizes.tokens`` tokens, for one sequence."""
        sums = sum(call.sum_numbers(self.plan.steps[i]) for i, call in self.sums.items())
        inputs = sum(
            min(count, sizes.tokens) * self._numbers(self.plan.steps[i].operands[0].ref, sizes)
            for i, count in self.inputs.items()
        )
        return self.held(sizes.tokens) * self.row(sizes) + sums + inputs

    def _numbers(self, ref: Ref, sizes: ModelSizes) -> int:
        """Those of a stream or node, of one token."""
        streams = {stream.name: stream.type for stream in self.plan.streams}
        return numbers(streams[ref] if isinstance(ref, str) else self.plan.steps[ref].type, sizes)


def memory_of(plan: Plan, sizes: ModelSizes) -> Memory:
    """The cache that holds the fewest numbers after ``sizes.tokens`` tokens.

    Where ways hold as many, sums go before rows, and rows that are read as they are before rows
    from which keys and values would have to be computed again.
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
    """Bytes that a ``Decoder`` for a context of ``sizes.tokens`` holds after these, per token.

    Every number counts as 16 bits, sums too, which a decoder holds in 32. For a mechanism that
    sees later tokens, and so cannot be decoded, the size of its keys and values.
    """
    return BYTES_PER_NUMBER * memory_of(plan, sizes).numbers(sizes) / sizes.tokens


def is_past(operand: Operand) -> bool:
    """Whether a call reads it at all tokens so far."""
    return operand.port.name in ("key", "values")


def shares_heads(step: Step) -> bool:
    """Whether a product of rows reads keys or values that several heads share, without copies."""
    return step.primitive.is_plain_product and [o.is_repeated for o in step.operands] == [
        False,
        True,
    ]


def check_decodable(plan: Plan) -> None:
    """Refuse mechanisms that cannot be decoded.

    Raises:
        GenomeError: it sees later tokens, or needs all of them at once.
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
    """Of how many tokens before its own a call reads the inputs; None where it reads no others."""
    return step.primitive.reach(step.params) if step.primitive.needs_all_tokens else None


def _read_rows(plan: Plan, called: frozenset[int]) -> frozenset[Ref]:
    """What is read as keys and values."""
    steps = (step for step in plan.steps if step.index in called)
    return frozenset(o.ref for step in steps for o in step.operands if is_past(o))


def sources_of(plan: Plan, called: frozenset[int]) -> frozenset[Ref]:
    """What keys and values follow from: streams, nodes of more than their own token's streams."""
    sources: dict[Ref, frozenset[Ref]] = {s.name: frozenset({s.name}) for s in plan.streams}
    for step in plan.steps:
        is_own = not step.is_paired and not step.primitive.needs_all_tokens
        if is_own and "x" not in step.primitive.extras:
            sources[step.index] = frozenset().union(*(sources[o.ref] for o in step.operands))
        else:
            sources[step.index] = frozenset({step.index})
    rows = _read_rows(plan, called)
    return frozenset().union(*(sources[ref] for ref in rows))
