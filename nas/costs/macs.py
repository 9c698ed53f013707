"""Multiply-adds that a compiled block runs, and the pairs of query and key that it computes.

Windows go block by block, and where they cannot, all pairs are computed. Linear attention goes in
the order in which its kernel takes it, means multiply nothing. What a causal mask hides is computed
all the same, but for whole blocks. Counts are those of a CPU in 32 bits: where its fused kernel
widens keys or values with zeros, the zeros are counted; features for biases of keys and for slopes
are not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from nas.compiler.kernels.runtime import fused_from
from nas.compiler.lowering import forms_of, is_shift, live, lower, uncalled
from nas.genome.primitives.factors import Weights

if TYPE_CHECKING:
    from collections.abc import Collection

    from nas.compiler import Plan
    from nas.compiler.lowering import Lowered
    from nas.compiler.plan import Operand, Step
    from nas.genome import ModelSizes, Ref
    from nas.genome.primitives.base import Sizes
    from nas.genome.types import Type

SMALLEST_BLOCK: Final = 64  # queries of a window's block, at least
CAUSAL_PAIRS: Final = 256  # tokens up to which causal linear attention goes by pairs
CAUSAL_CHUNK: Final = 128  # tokens of a chunk of longer ones, within which it goes by pairs


class Computed(NamedTuple):
    """Multiply-adds that run: all, and those of maps of single tokens, projections included."""

    all: int
    tokens: int


def computed_macs(plan: Plan, sizes: ModelSizes, is_causal: bool = False) -> Computed:
    """The multiply-adds of a compiled block at batch 1, by its calls."""
    fused = lower(plan)
    hidden = uncalled(plan, fused)
    of_tokens, total = _projections(plan, sizes, live(plan, fused)), 0
    for step in plan.steps:
        if step.index in fused:
            call = Call(plan, fused[step.index], sizes, is_causal)
            alone, paired = call.token_macs(), call.pair_macs()
        elif step.index in hidden:
            continue
        else:
            alone, paired = _step_macs(plan, step, sizes, is_causal)
        of_tokens, total = of_tokens + alone, total + paired
    return Computed(of_tokens + total, of_tokens)


def closed_form_macs(plan: Plan, sizes: ModelSizes) -> int:
    """The MACs of the reference form by the formulas that its primitives state: all pairs."""
    projections = _projections(plan, sizes, {stream.name for stream in plan.streams})
    return projections + sum(s.primitive.macs(_sizes(plan, s, sizes), s.params) for s in plan.steps)


def computed_pairs(plan: Plan, tokens: int, is_causal: bool = False) -> int:
    """How many pairs of query and key are computed for a head."""
    return sum(block.pairs for block in _blocks(plan, tokens, is_causal))


def is_by_sums(keys: int, width: int, is_causal: bool) -> bool:
    """Whether linear attention over so many keys goes by sums, where its queries see the same."""
    return keys > (CAUSAL_PAIRS if is_causal else width)


def numbers(token_type: Type, sizes: ModelSizes) -> int:
    """Numbers of a token, all heads together."""
    return token_type.head_count(sizes.heads) * token_type.channels(sizes.dim, sizes.heads)


def _projections(plan: Plan, sizes: ModelSizes, read: Collection[Ref]) -> int:
    """The multiply-adds of the streams that are read, and of W_O."""
    streams = (s for s in plan.streams if s.is_projected and s.name in read)
    width = sum(numbers(stream.type, sizes) for stream in streams)
    if plan.genome.projections.has_wo:
        width += plan.merged_width(sizes.dim, sizes.heads)
    return sizes.tokens * sizes.dim * width


def _sizes(plan: Plan, step: Step, sizes: ModelSizes) -> Sizes:
    return plan.call_sizes(step, sizes.dim, sizes.heads, sizes.tokens)


def _step_macs(plan: Plan, step: Step, sizes: ModelSizes, is_causal: bool) -> tuple[int, int]:
    """A step's multiply-adds of single tokens, and of pairs, over all blocks."""
    whole, tokens = _sizes(plan, step, sizes), sizes.tokens
    blocks = _blocks(plan, tokens, is_causal) if step.is_paired else [_Block(tokens, tokens)]
    alone = paired = 0
    for queries, keys in blocks:
        size = replace(whole, tokens=keys, rows=queries)
        single = step.primitive.macs(replace(size, allowed=0), step.params)
        alone, paired = alone + single, paired + step.primitive.macs(size, step.params) - single
    return alone, paired


class _Block(NamedTuple):
    """Queries that are computed together, and the keys that they are computed with."""

    queries: int
    keys: int

    @property
    def pairs(self) -> int:
        return self.queries * self.keys


def _blocks(plan: Plan, tokens: int, is_causal: bool) -> list[_Block]:
    """How a sequence is cut into blocks of queries: as ``window_blocks`` has it.

    A sequence of up to two blocks is one, and so is one whose calls need all tokens at once.
    """
    window, first = plan.genome.visibility.window, plan.genome.visibility.global_tokens
    size = max(window or tokens, SMALLEST_BLOCK)
    if window is None or not plan.is_blockwise or tokens <= 2 * size:
        return [_Block(tokens, tokens)]
    behind, ahead = (window - 1, 0) if is_causal else (window // 2, window // 2)
    first, blocks = min(first, tokens), []
    for start in range(0, first, size):
        stop = min(start + size, first)
        blocks.append(_Block(stop - start, stop if is_causal else tokens))
    for start in range(first, tokens, size):
        stop, low = min(start + size, tokens), max(start - behind, 0)
        blocks.append(_Block(stop - start, min(tokens, stop + ahead) - low + min(low, first)))
    return blocks


class Call:
    """Multiply-adds of aggregations that are one call."""

    def __init__(
        self, plan: Plan, call: Lowered, sizes: ModelSizes, is_causal: bool = False
    ) -> None:
        self.plan, self.call, self.sizes, self.is_causal = plan, call, sizes, is_causal
        self._forms = forms_of(call, {step.index: self._width(step) for step in call.scores})

    def token_macs(self) -> int:
        """Of the maps of single queries or keys that make its features."""
        called = (step for step in self.call.scores if self._is_called(step))
        return sum(_step_macs(self.plan, s, self.sizes, self.is_causal)[0] for s in called)

    def pair_macs(self) -> int:
        """Of scores and sums."""
        blocks = _blocks(self.plan, self.sizes.tokens, self.is_causal)
        return sum(self._block_macs(block) for block in blocks)

    @property
    def has_sums(self) -> bool:
        """Whether sums over the keys continue it from token to token."""
        return self.call.is_grouped and not self.plan.is_windowed

    def sum_numbers(self, step: Step) -> int:
        """Numbers of the sums that continue one of its aggregations."""
        return self._features_width() * self._grouped(step)

    def _block_macs(self, block: _Block) -> int:
        """Of one block; means and linear attention by sums where all its queries see the same."""
        call, pairs, width = self.call, block.pairs, self._features_width()
        values = sum(self._values(step) for step in call.sums)
        is_alike = not self.plan.is_windowed or block.queries == 1
        if not call.scores:
            return 0 if is_alike else pairs * self._grouped_values()
        weights = self._count(call.normaliser)
        is_causal = self.is_causal and not self.plan.is_windowed  # else its mask says what is past
        if call.is_linear and is_alike and is_by_sums(block.keys, width, is_causal):
            if not is_causal:
                return width * (block.keys * self._grouped_values() + block.queries * values)
            padded = block.keys + -block.keys % CAUSAL_CHUNK
            return padded * (CAUSAL_CHUNK * (weights * width + values) + 2 * width * values)
        # A silent key stands before the others.
        keys = block.keys + call.has_silent_key
        if self._has_fused_kernel() and keys >= fused_from(width, values // weights):
            return block.queries * keys * 2 * max(weights * width, values)
        return block.queries * keys * (weights * width + values)

    def _has_fused_kernel(self) -> bool:
        """Whether torch's fused kernel computes the call, with equally wide keys and values."""
        changes = (step.primitive.score_change for step in self.call.scores)
        has_cap = any(change is not None and change.cap for change in changes)
        return self.call.weights in (Weights.SOFTMAX, Weights.SOFTMAX_ONE) and not has_cap

    def _features_width(self) -> int:
        """The width of the features that it multiplies; 1 where it reads no scores."""
        if not self.call.scores:
            return 1
        last = self._forms[self.call.scores[-1].index]
        return last.width + (self.call.is_linear and last.has_bias)

    def _is_called(self, step: Step) -> bool:
        """A bias of the keys that are multiplied anyway shifts the queries instead."""
        below = [self._forms[operand.ref] for operand in step.operands if operand.is_paired]
        return not (below and is_shift(step, below[0]))

    def _grouped_values(self) -> int:
        """Values of a token, with as many heads as keys and values have where they are shared."""
        if len(self.call.sums) > 1 or self.call.shares_weights:
            return sum(self._values(step) for step in self.call.sums)
        return self._grouped(self.call.sums[0])

    def _grouped(self, step: Step) -> int:
        """Those of one aggregation, by sums of its own."""
        every, shared = self._count(step), self._held(step.operands[1])
        if self.call.scores:
            keys = [o for s in self.call.scores for o in s.operands if o.port.name == "key"]
            shared = max(shared, self._held(keys[0]) if len(keys) == 1 else every)
        return self._values(step) // every * shared

    def _held(self, operand: Operand) -> int:
        return operand.type.head_count(self.sizes.heads)

    def _count(self, step: Step) -> int:
        return step.type.head_count(self.sizes.heads)

    def _width(self, step: Step) -> int:
        return _sizes(self.plan, step, self.sizes).width

    def _values(self, step: Step) -> int:
        return self._count(step) * self._width(step)
