"""Multiply-adds that a compiled block executes, and the pairs of query and key that it computes.

The rules of the count:

- A window is computed in blocks of queries, or with all pairs if blocks are impossible.
- Linear attention is counted in the order in which its kernel multiplies. A mean over the whole
  sequence multiplies nothing.
- Pairs that a causal mask hides are computed and counted, except blocks that are hidden as a whole.
- The kernels are those of a CPU in 32 bits. The fused kernel needs keys and values of equal width;
  the zeros with which it pads them are counted. Additional features that represent key biases and
  slopes are not counted.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final, NamedTuple

from nas.compiler import Plan
from nas.compiler.kernels import counts
from nas.compiler.kernels.gated import gated_macs, is_in_chunks
from nas.compiler.kernels.runtime import fused_from
from nas.compiler.lowering import Lowered, forms_of, is_shift, live, lower, uncalled
from nas.compiler.plan import Operand, Step
from nas.genome import ModelSizes, Ref
from nas.genome.primitives.base import Sizes
from nas.genome.primitives.factors import Weights
from nas.genome.types import Type

SMALLEST_BLOCK: Final = 64  # fewest queries of a window's block
CAUSAL_PAIRS: Final = 256  # most tokens for which causal linear attention computes all pairs
CAUSAL_CHUNK: Final = 128  # tokens per chunk of longer sequences


class Computed(NamedTuple):
    """Multiply-adds that a block executes.

    Attributes:
        all: all multiply-adds.
        tokens: the multiply-adds of projections and of other maps of single tokens.
    """

    all: int
    tokens: int


def computed_macs(plan: Plan, sizes: ModelSizes, is_causal: bool = False) -> Computed:
    """Return the multiply-adds of a compiled block at batch size 1."""
    fused = lower(plan)
    replaced = uncalled(plan, fused) - fused.keys()
    tokens, pairs = _projections(plan, sizes, live(plan, fused)), 0
    for step in plan.steps:
        if step.index in replaced:
            continue
        if step.index in fused:
            call = Call(plan, fused[step.index], sizes, is_causal)
            of_tokens, of_pairs = call.token_macs(), call.pair_macs()
        else:
            of_tokens, of_pairs = _step_macs(plan, step, sizes, is_causal)
        tokens, pairs = tokens + of_tokens, pairs + of_pairs
    return Computed(tokens + pairs, tokens)


def closed_form_macs(plan: Plan, sizes: ModelSizes) -> int:
    """Return the MACs of a block that computes all pairs of query and key, by declared formulas.

    The formulas are the ``macs`` of the primitives.
    """
    projections = _projections(plan, sizes, {stream.name for stream in plan.streams})
    return projections + sum(s.primitive.macs(_sizes(plan, s, sizes), s.params) for s in plan.steps)


def computed_pairs(plan: Plan, tokens: int, is_causal: bool = False) -> int:
    """Return the number of pairs of query and key that one head computes."""
    return sum(block.pairs for block in _blocks(plan, tokens, is_causal))


def is_by_sums(keys: int, width: int, is_causal: bool) -> bool:
    """Return whether linear attention first multiplies keys with values, which needs no pairs.

    Otherwise it first multiplies queries with keys.
    """
    return keys > (CAUSAL_PAIRS if is_causal else width)


def token_width(type_: Type, dim: int, heads: int) -> int:
    """Return the number of elements per token, over all heads, of a tensor of this type."""
    return type_.head_count(heads) * type_.channels(dim, heads)


def _projections(plan: Plan, sizes: ModelSizes, read: Collection[Ref]) -> int:
    """Return the multiply-adds of W_O and of the projections of the streams in ``read``."""
    streams = (s for s in plan.streams if s.is_projected and s.name in read)
    width = sum(token_width(stream.type, sizes.dim, sizes.heads) for stream in streams)
    if plan.genome.projections.has_wo:
        width += plan.merged_width(sizes.dim, sizes.heads)
    return sizes.tokens * sizes.dim * width


def _sizes(plan: Plan, step: Step, sizes: ModelSizes) -> Sizes:
    return plan.call_sizes(step, sizes.dim, sizes.heads, sizes.tokens)


def _step_macs(plan: Plan, step: Step, sizes: ModelSizes, is_causal: bool) -> tuple[int, int]:
    """Return a step's multiply-adds on single tokens, and on pairs of query and key."""
    whole, tokens = _sizes(plan, step, sizes), sizes.tokens
    if (counted := counts().get(step.primitive.module)) is not None:
        return counted(whole), 0
    blocks = _blocks(plan, tokens, is_causal) if step.is_paired else [_Block(tokens, tokens)]
    of_tokens = of_pairs = 0
    for queries, keys in blocks:
        size = replace(whole, tokens=keys, rows=queries)
        without_pairs = step.primitive.macs(replace(size, allowed=0), step.params)
        of_tokens += without_pairs
        of_pairs += step.primitive.macs(size, step.params) - without_pairs
    return of_tokens, of_pairs


class _Block(NamedTuple):
    """The number of queries of a block, and the number of keys that at least one query may see."""

    queries: int
    keys: int

    @property
    def pairs(self) -> int:
        return self.queries * self.keys


def _blocks(plan: Plan, tokens: int, is_causal: bool) -> list[_Block]:
    """Return the blocks in which the kernel ``window_blocks`` computes a sequence.

    The whole sequence is one block if there is no window, if at most two blocks would be needed, or
    if a step needs all tokens at once.
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
    """Multiply-adds of one fused call: a kernel that computes aggregations with their scores.

    Args:
        call: the fused call.
    """

    def __init__(
        self, plan: Plan, call: Lowered, sizes: ModelSizes, is_causal: bool = False
    ) -> None:
        self.plan, self.call, self.sizes, self.is_causal = plan, call, sizes, is_causal
        widths = {step.index: _sizes(plan, step, sizes).width for step in call.scores}
        self._forms = forms_of(call, widths)

    def token_macs(self) -> int:
        """Return the multiply-adds of the call's maps from queries and keys to features."""
        called = (step for step in self.call.scores if self._is_called(step))
        return sum(_step_macs(self.plan, s, self.sizes, self.is_causal)[0] for s in called)

    def pair_macs(self) -> int:
        """Return the multiply-adds of the call's scores and aggregations."""
        blocks = _blocks(self.plan, self.sizes.tokens, self.is_causal)
        return sum(self._block_macs(block) for block in blocks)

    @property
    def has_sums(self) -> bool:
        """Whether a decoder can continue the call from running sums over keys."""
        return self.call.weights.is_by_sums and not self.plan.is_windowed

    def sum_numbers(self, step: Step) -> int:
        """Return the number of elements of the running sums of an aggregation."""
        if self.call.is_gated:  # and the last gates
            gates = self._count(step) * _sizes(self.plan, self.call.scores[0], self.sizes).gates
            ones = self.call.is_ratio * self._count(step)
            return self.features_width() * (self._values(step) + ones) + gates
        ones = self.call.is_ratio * self._heads(step)[1]
        return self.features_width() * (self._grouped(step) + ones)

    def _block_macs(self, block: _Block) -> int:
        call, pairs, width = self.call, block.pairs, self.features_width()
        # The sum of the weights is an additional feature of the values.
        values = sum(self._values(step) for step in call.sums)
        values += call.is_ratio * self._count(call.normaliser)
        is_alike = not self.plan.is_windowed or block.queries == 1
        if not call.scores:
            return 0 if is_alike else pairs * self._grouped_values()
        if call.is_gated:
            return self._gated_macs(block)
        weights = self._count(call.normaliser)
        is_causal = self.is_causal and not self.plan.is_windowed  # a window's mask is causal itself
        if call.is_linear and is_alike and is_by_sums(block.keys, width, is_causal):
            if not is_causal:
                return width * (block.keys * self._grouped_values() + block.queries * values)
            padded = block.keys + -block.keys % CAUSAL_CHUNK
            return padded * (CAUSAL_CHUNK * (weights * width + values) + 2 * width * values)
        # Softmax-one and softmax-sink have an additional key.
        keys = block.keys + call.has_silent_key
        if self._has_fused_kernel() and keys >= fused_from(width, values // weights):
            # A learned sink, the bias of the additional key, is a further feature.
            width += call.weights is Weights.SOFTMAX_SINK
            return block.queries * keys * 2 * max(weights * width, values)
        return block.queries * keys * (weights * width + values)

    def _gated_macs(self, block: _Block) -> int:
        score = self.call.scores[0]
        sizes = replace(_sizes(self.plan, score, self.sizes), tokens=block.keys)
        if not self.plan.is_windowed and is_in_chunks(block.keys, sizes.gates):
            return gated_macs(sizes, self._values_width()) * (1 if self.is_causal else 2)
        return block.pairs * sizes.heads * (sizes.width + self._values_width())

    def _values_width(self) -> int:
        values = sum(self._values(step) for step in self.call.sums)
        return values // self._count(self.call.normaliser) + self.call.is_ratio

    def _has_fused_kernel(self) -> bool:
        """Return whether torch's fused kernel, which pads keys or values, computes the call."""
        changes = [c for c in (s.primitive.score_change for s in self.call.scores) if c is not None]
        has_cap = any(change.cap for change in changes)
        # Sums of gates are a bias of the keys under a causal mask alone.
        if any(change.decays for change in changes) and (
            self.plan.is_windowed or not self.is_causal
        ):
            return False
        is_softmax = self.call.weights is Weights.SOFTMAX or self.call.has_silent_key
        return is_softmax and not has_cap

    def features_width(self) -> int:
        """Return the width of the call's features; 1 if it reads no scores."""
        if not self.call.scores:
            return 1
        last = self._forms[self.call.scores[-1].index]
        return last.width + (self.call.is_linear and last.has_bias)

    def _is_called(self, step: Step) -> bool:
        """Return whether a step's map from queries and keys to features runs.

        The map does not run if the step only adds a bias to the scores that can be added to the
        queries.
        """
        below = [self._forms[operand.ref] for operand in step.operands if operand.is_paired]
        return not (below and is_shift(step, below[0]))

    def _grouped_values(self) -> int:
        ones = self.call.is_ratio
        if len(self.call.sums) > 1 or self.call.shares_weights:
            values = sum(self._values(step) for step in self.call.sums)
            return values + ones * self._count(self.call.normaliser)
        first = self.call.sums[0]
        return self._grouped(first) + ones * self._heads(first)[1]

    def _grouped(self, step: Step) -> int:
        every, shared = self._heads(step)
        return self._values(step) // every * shared

    def _heads(self, step: Step) -> tuple[int, int]:
        """Return the head counts of an aggregation, and of the larger of its keys and values."""
        every, shared = self._count(step), self._count(step.operands[1])
        if self.call.scores:
            keys = [o for s in self.call.scores for o in s.operands if o.port.name == "key"]
            shared = max(shared, self._count(keys[0]) if len(keys) == 1 else every)
        return every, shared

    def _count(self, part: Step | Operand) -> int:
        return part.type.head_count(self.sizes.heads)

    def _values(self, step: Step) -> int:
        return self._count(step) * _sizes(self.plan, step, self.sizes).width
