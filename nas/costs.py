"""What a mechanism costs: multiply-adds, parameters, caches; of a block and of a backbone.

``macs`` counts the products that really run at a size: of pairs of query and key those that are
computed (windows go block by block, and where they cannot, all pairs are), linear attention in the
cheaper order, nothing for means. Causality is not discounted: at these lengths kernels compute all
pairs. Zeros by which a kernel widens its operands are not counted.

A genome's costs in a search are members of ``COSTS``, each a number for all attention layers of a
backbone. Counts of the reference form (nas.counting) check the closed formulas that primitives
state of themselves; what differs is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nas.compiler import make_plan
from nas.compiler.decoding import kept_for_later
from nas.compiler.lowering import chosen_rules, live, lower, uncalled
from nas.counting import ELEMENTWISE, TRACED_LENGTHS, count_operations, count_parameters
from nas.errors import NasError
from nas.genome import ModelSizes, Visibility, layers_with_mechanism
from nas.mechanisms import mechanism
from nas.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nas.compiler import Plan
    from nas.compiler.lowering import Lowered
    from nas.compiler.plan import Operand, Step
    from nas.genome import Genome, Ref
    from nas.primitives.base import Sizes
    from nas.types import Type

BYTES_PER_NUMBER: Final = 2  # caches are kept in 16 bits
SMALLEST_BLOCK: Final = 64  # queries of a window's block, at least
DEFAULT_COSTS: Final = ("macs", "params", "kv_cache_bytes_per_token")


@dataclass(frozen=True)
class Setting:
    """Where a genome's costs are asked for.

    Attributes:
        is_causal: whether every call is; what it hides is not discounted.
        calibration: of the predicted time, by nas.timing; empty where none was measured.
    """

    sizes: ModelSizes
    qkv_bias: bool
    is_causal: bool
    calibration: Mapping[str, Any]


@dataclass(frozen=True)
class CostMeasure:
    """A cost of a genome, all attention layers of a backbone together.

    Attributes:
        of: from a genome and a setting; raises GenomeError where the mechanism does not exist.
    """

    name: str
    unit: str
    about: str
    of: Callable[[Genome, Setting], float]


# A cost of one layer, from its plan, the model's sizes and whether projections have biases.
Measure = Callable[["Plan", ModelSizes, bool], float]
COSTS: Registry[CostMeasure] = Registry("cost", "nas.costs", modules=("nas.costs", "nas.timing"))


def costs_of(
    genome: Genome, setting: Setting, names: Iterable[str] | None = None
) -> dict[str, float]:
    """The costs of a genome by name, by default those that take no trace and no calibration.

    Raises:
        ConfigError: there is no such cost.
        GenomeError, ViolationError: the mechanism does not exist at these sizes.
    """
    names = DEFAULT_COSTS if names is None else names
    return {name: float(COSTS.get(name).of(genome, setting)) for name in names}


@dataclass(frozen=True)
class Cost:
    """The cost of one attention block at batch 1.

    Attributes:
        macs: multiply-adds of the whole block, projections included.
        attention_macs: those of them that scores and aggregation take.
        elementwise: elements that pointwise operations, reductions and norms touch.
        params: learned numbers.
        kv_cache_bytes_per_token: what decoding holds after so many tokens, for each of them, at
            16 bits a number.
        seed_compatible_macs: what plain fvcore says of the published encoder layer with this
            mechanism in it (biases, layer norms at 5 an element, a feed-forward of 4 d).
        remarks: what a person should know of the block at this size.
    """

    macs: int
    attention_macs: int
    elementwise: int
    params: int
    kv_cache_bytes_per_token: int
    seed_compatible_macs: int
    remarks: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, int]:
        """The JSON answer of ``nas cost``: the numbers."""
        return {name: value for name, value in asdict(self).items() if name != "remarks"}


def attention_cost(
    genome: Genome, *, dim: int, heads: int, tokens: int, qkv_bias: bool = False
) -> Cost:
    """Count one attention block of a backbone with ``dim`` channels and ``heads`` heads.

    Raises:
        GenomeError, ViolationError: the mechanism does not exist at this size.
        NasError: it uses an operation whose cost nobody has stated.
    """
    plan = make_plan(genome, ModelSizes(dim, heads, 1, tokens))
    dense = dense_plan(plan)
    counts = count_operations(dense, dim, heads, tokens, qkv_bias)
    macs = sum(count for name, count in counts.items() if name != ELEMENTWISE)
    expected = closed_form_macs(dense, dim, heads, tokens)
    if macs != expected:
        raise NasError(
            f"the MACs counted, {macs}, differ from the closed formulas of "
            f"{', '.join(sorted({s.primitive.name for s in plan.steps}))}: {expected}; "
            "expected a primitive's macs to state what its module computes."
        )
    elementwise = counts[ELEMENTWISE]
    if hidden := tokens**2 - computed_pairs(plan, tokens):
        elementwise -= hidden * _elementwise_per_pair(dense, dim, heads, qkv_bias)
    computed = computed_macs(plan, dim, heads, tokens)
    return Cost(
        macs=computed.all,
        attention_macs=computed.all - computed.tokens,
        elementwise=elementwise,
        params=count_parameters(plan, dim, heads, qkv_bias),
        kv_cache_bytes_per_token=math.ceil(kv_cache_bytes_per_token(plan, dim, heads, tokens)),
        seed_compatible_macs=_seed_compatible(dense, dim, heads, tokens, macs),
        remarks=plan.remarks(heads),
    )


def _elementwise_per_pair(plan: Plan, dim: int, heads: int, qkv_bias: bool) -> int:
    """What each pair of query and key adds to the elementwise count, exactly."""
    few, more, most = (
        count_operations(plan, dim, heads, n, qkv_bias)[ELEMENTWISE] for n in TRACED_LENGTHS
    )
    step = TRACED_LENGTHS[1] - TRACED_LENGTHS[0]
    return (few - 2 * more + most) // (2 * step**2)


def dense_plan(plan: Plan) -> Plan:
    """A plan without its window: the reference form, which is counted, computes every pair."""
    return replace(plan, genome=replace(plan.genome, visibility=Visibility()))


class Computed(NamedTuple):
    """Multiply-adds that run: all, and those of maps of single tokens, projections included."""

    all: int
    tokens: int


def computed_macs(plan: Plan, dim: int, heads: int, tokens: int) -> Computed:
    """The multiply-adds of a compiled block at batch 1, by its calls."""
    fused = lower(plan, chosen_rules(True))
    hidden, read = uncalled(plan, fused), live(plan, fused)
    streams = [s for s in plan.streams if s.is_projected and s.name in read]
    own = sum(tokens * dim * _numbers(stream.type, dim, heads) for stream in streams)
    if plan.genome.projections.has_wo:
        own += tokens * dim * plan.merged_width(dim, heads)
    total = 0
    for step in plan.steps:
        if step.index in fused:
            call = _Call(plan, fused[step.index], dim, heads, tokens)
            own, total = own + call.token_macs(), total + call.pair_macs()
        elif step.index not in hidden:
            alone, paired = _step_macs(plan, step, plan.call_sizes(step, dim, heads, tokens))
            own, total = own + alone, total + paired
    return Computed(own + total, own)


def _step_macs(plan: Plan, step: Step, sizes: Sizes) -> tuple[int, int]:
    """A step's multiply-adds of single tokens, and of pairs, over all blocks."""
    alone = paired = 0
    blocks = _blocks(plan, sizes.tokens) if step.is_paired else [_Block(sizes.tokens, sizes.tokens)]
    for queries, keys in blocks:
        there = replace(sizes, tokens=keys, rows=queries)
        own = step.primitive.macs(replace(there, allowed=0), step.params)
        alone, paired = alone + own, paired + step.primitive.macs(there, step.params) - own
    return alone, paired


def computed_pairs(plan: Plan, tokens: int) -> int:
    """How many pairs of query and key are computed for a head, without a causal mask."""
    return sum(block.pairs for block in _blocks(plan, tokens))


class _Block(NamedTuple):
    """Queries that are computed together, and the keys that they are computed with."""

    queries: int
    keys: int

    @property
    def pairs(self) -> int:
        return self.queries * self.keys


def _blocks(plan: Plan, tokens: int) -> list[_Block]:
    """How a sequence is cut into blocks of queries: as ``window_blocks`` has it.

    A sequence of up to two blocks is one, and so is one whose calls need all tokens at once.
    """
    seen = plan.genome.visibility
    size = max(seen.window or tokens, SMALLEST_BLOCK)
    if seen.window is None or not plan.is_blockwise or tokens <= 2 * size:
        return [_Block(tokens, tokens)]
    reach, first = seen.window // 2, min(seen.global_tokens, tokens)
    blocks = [_Block(min(size, first - start), tokens) for start in range(0, first, size)]
    for start in range(first, tokens, size):
        stop, low = min(start + size, tokens), max(start - reach, 0)
        blocks.append(_Block(stop - start, min(tokens, stop + reach) - low + min(low, first)))
    return blocks


class _Call(NamedTuple):
    """An aggregation that is one call: what it multiplies."""

    plan: Plan
    call: Lowered
    dim: int
    heads: int
    tokens: int

    def token_macs(self) -> int:
        """Of the maps of single queries or keys that make its features."""
        called = [step for step in self.call.scores if self._is_called(step)]
        return sum(_step_macs(self.plan, step, self._sizes(step))[0] for step in called)

    def pair_macs(self) -> int:
        """Of scores and sums."""
        return sum(self._block_macs(block) for block in _blocks(self.plan, self.tokens))

    def _block_macs(self, block: _Block) -> int:
        """Of one block; means and linear attention by sums where all its queries see the same."""
        call, pairs = self.call, block.pairs
        values = sum(self._values(step) for step in call.sums)
        is_alike = not self.plan.is_windowed or block.queries == 1
        if not call.scores:
            return 0 if is_alike else pairs * self._grouped_values()
        width, has_bias = self._features()
        if call.is_linear:
            width += has_bias
            if is_alike and block.keys > width:
                return width * (block.keys * self._grouped_values() + block.queries * values)
        # A silent key stands before the others.
        pairs += block.queries if call.has_silent_key else 0
        return pairs * (self._count(call.normaliser) * width + values)

    def state(self) -> int | None:
        """Numbers that continue it from token to token, where these do not grow; else None."""
        if self.plan.is_windowed or not (self.call.is_linear or not self.call.scores):
            return None
        width, has_bias = self._features() if self.call.scores else (1, False)
        return (width + has_bias) * self._grouped_values()

    def _features(self) -> tuple[int, bool]:
        """The width of the features that it multiplies, and whether each key adds a number."""
        last = self._products()[self.call.scores[-1].index]
        return last.width, last.has_bias

    def _products(self) -> dict[Ref, _Product]:
        known: dict[Ref, _Product] = {}
        for step in self.call.scores:
            known[step.index] = _product(step, known, self._sizes(step).width)
        return known

    def _is_called(self, step: Step) -> bool:
        """A bias of the keys that are multiplied anyway shifts the queries instead."""
        if step.primitive.name != "key_bias":
            return True
        return self._products()[step.operands[0].ref].key != step.operands[1].variable

    def _grouped_values(self) -> int:
        """Values of a token, with as many heads as keys and values have where they are shared."""
        keys = [o for s in self.call.scores for o in s.operands if o.port.name == "key"]
        call, values = self.call, sum(self._values(step) for step in self.call.sums)
        if not call.is_grouped or len(call.sums) > 1 or call.is_folded:
            return values
        every = self._count(call.sums[0])
        shared = self._held(call.sums[0].operands[1])
        if call.scores:
            single = len(keys) == 1
            shared = max(shared, self._held(keys[0]) if single else every)
        return values // every * shared

    def _held(self, operand: Operand) -> int:
        return operand.type.head_count(self.heads)

    def _values(self, step: Step) -> int:
        return self._count(step) * self._sizes(step).width

    def _count(self, step: Step) -> int:
        return step.type.head_count(self.heads)

    def _sizes(self, step: Step) -> Sizes:
        return self.plan.call_sizes(step, self.dim, self.heads, self.tokens)


class _Product(NamedTuple):
    """A score as a product: what is multiplied, named, how wide, and whether keys add a number."""

    query: str
    key: str
    width: int
    has_bias: bool


def _product(step: Step, known: Mapping[Ref, _Product], width: int) -> _Product:
    """What a score multiplies, as nas.compiler.features writes it."""
    name, below = step.primitive.name, [known[o.ref] for o in step.operands if o.ref in known]
    query, key = f"query_{step.index}", f"key_{step.index}"
    if name == "add":
        first, second = below
        has_bias = first.has_bias or second.has_bias
        if first.key == second.key:
            return _Product(query, first.key, first.width, has_bias)
        if first.query == second.query:
            return _Product(first.query, key, first.width, has_bias)
        return _Product(query, key, first.width + second.width, has_bias)
    if name == "key_bias":
        score = below[0]
        if score.key == step.operands[1].variable:
            return score._replace(query=query)
        return score._replace(has_bias=True)
    if below:
        return below[0]._replace(query=query) if name == "temperature" else below[0]
    own = step.operands[1].variable
    return _Product(query, key if name == "cosine" else own, width, name == "distance")


def _numbers(found: Type, dim: int, heads: int) -> int:
    """Numbers of a token, all heads together."""
    return found.head_count(heads) * found.channels(dim, heads)


def closed_form_macs(plan: Plan, dim: int, heads: int, tokens: int) -> int:
    """The MACs of the reference form by the formulas that its primitives state: all pairs."""
    total = 0
    for stream in plan.streams:
        if stream.is_projected:
            total += tokens * dim * _numbers(stream.type, dim, heads)
    for step in plan.steps:
        total += step.primitive.macs(plan.call_sizes(step, dim, heads, tokens), step.params)
    if plan.genome.projections.has_wo:
        total += tokens * dim * plan.merged_width(dim, heads)
    return total


def kv_cache_bytes_per_token(plan: Plan, dim: int, heads: int, tokens: int) -> float:
    """What causal decoding has to hold after ``tokens`` tokens, for each of them.

    Streams that keys and values come from are held projected; those without projection share the
    token itself; what is computed from more than its own token's streams is held as it is. A
    window holds no more than its tokens and the global ones. Linear attention and means hold a
    state whose size does not grow, where that is less. (A ``Decoder`` holds all tokens.)
    """
    seen = plan.genome.visibility
    held = tokens if seen.window is None else min(tokens, seen.window + seen.global_tokens)
    fused = lower(plan, chosen_rules(True))
    states: dict[int, int] = {}
    for call in fused.values():
        if state := _Call(plan, call, dim, heads, tokens).state():
            states |= {step.index: 0 for step in (*call.scores, call.normaliser, *call.sums)}
            states[call.sums[0].index] = state
    every = held * _held_numbers(plan, kept_for_later(plan), dim, heads)
    rest = held * _held_numbers(plan, kept_for_later(plan, set(states)), dim, heads)
    return BYTES_PER_NUMBER * min(every, rest + sum(states.values())) / tokens


def _held_numbers(plan: Plan, kept: set[Ref], dim: int, heads: int) -> int:
    """Numbers of a token in what is kept."""
    types: dict[Any, Type] = {stream.name: stream.type for stream in plan.streams}
    types |= {step.index: step.type for step in plan.steps}
    raw = {stream.name for stream in plan.streams if not stream.is_projected}
    shared = dim if kept & raw else 0
    return shared + sum(_numbers(types[ref], dim, heads) for ref in kept - raw)


def _seed_compatible(plan: Plan, dim: int, heads: int, tokens: int, macs: int) -> int:
    """Plain fvcore's view: our exact products, without what the published code hides from it.

    It sees no convolution (padding 'same' is no operation it knows) and no sparsemax; norms
    count 5 an element, in the block as around it.
    """
    hidden = 0
    norms = 2 * tokens * dim
    for step in plan.steps:
        sizes = plan.call_sizes(step, dim, heads, tokens)
        if step.primitive.name == "convolutional_score":
            hidden += (
                step.primitive.macs(sizes, step.params) - sizes.heads * tokens**2 * sizes.width
            )
        if step.primitive.name == "layer_norm":
            norms += sizes.heads * tokens * sizes.width
    return macs - hidden + 5 * norms + 8 * tokens * dim**2


@lru_cache(maxsize=4096)
def _plan(genome: Genome, sizes: ModelSizes) -> Plan:
    return make_plan(genome, sizes)


@lru_cache(maxsize=4096)
def _of_layer(measure: Measure, genome: Genome, sizes: ModelSizes, qkv_bias: bool) -> float:
    return measure(_plan(genome, sizes), sizes, qkv_bias)


def summed_layers(genome: Genome, depth: int, layer: Callable[[Genome], float]) -> float:
    """A layer's cost over a backbone, standard attention where the placement has it."""
    own = len(layers_with_mechanism(genome.placement, depth))
    total = own * layer(genome)
    return total if own == depth else total + (depth - own) * layer(mechanism("mha").genome)


def _cost(name: str, unit: str, about: str) -> Callable[[Measure], Measure]:
    """Register what a function says of a layer, for all of them."""

    def register(measure: Measure) -> Measure:
        def of(genome: Genome, setting: Setting) -> float:
            def layer(one: Genome) -> float:
                return _of_layer(measure, one, setting.sizes, setting.qkv_bias)

            return summed_layers(genome, setting.sizes.depth, layer)

        COSTS.register(name)(CostMeasure(name, unit, about, of))
        return measure

    return register


@_cost("macs", "MACs", "multiply-adds of an example, as they run")
def _macs(plan: Plan, sizes: ModelSizes, qkv_bias: bool) -> float:
    return computed_macs(plan, sizes.dim, sizes.heads, sizes.tokens).all


@_cost("params", "parameters", "learned numbers")
def _params(plan: Plan, sizes: ModelSizes, qkv_bias: bool) -> float:
    return count_parameters(plan, sizes.dim, sizes.heads, qkv_bias)


@_cost("kv_cache_bytes_per_token", "bytes", "what decoding holds of a token")
def _kv_cache(plan: Plan, sizes: ModelSizes, qkv_bias: bool) -> float:
    return kv_cache_bytes_per_token(plan, sizes.dim, sizes.heads, sizes.tokens)


@_cost("elementwise", "elements", "elements that pointwise operations touch")
def _elementwise(plan: Plan, sizes: ModelSizes, qkv_bias: bool) -> float:
    dim, heads, _, tokens = sizes
    cost = attention_cost(plan.genome, dim=dim, heads=heads, tokens=tokens, qkv_bias=qkv_bias)
    return cost.elementwise
