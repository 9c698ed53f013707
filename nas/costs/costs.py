"""What a mechanism costs: multiply-adds, parameters, caches; of a block and of a backbone.

``macs`` counts the products that really run at a size (nas.costs.macs). A genome's costs in a
search are members of ``COSTS``, each a number for all attention layers of a backbone. Counts of the
reference form (nas.costs.counting) check the closed formulas that primitives state of themselves; a
difference is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from nas.common.errors import NasError
from nas.common.registry import Registry
from nas.compiler import make_plan, resolve, standard_attention
from nas.costs.counting import ELEMENTWISE, TRACED_LENGTHS, count_operations, count_parameters
from nas.costs.decoding.memory import memory_of
from nas.costs.macs import closed_form_macs, computed_macs, computed_pairs
from nas.genome import ModelSizes, Visibility, layers_with_mechanism

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nas.compiler import Plan, ResolvedGenome
    from nas.genome import Genome

BYTES_PER_NUMBER: Final = 2  # caches are kept in 16 bits
DEFAULT_COSTS: Final = ("macs", "params", "kv_cache_bytes_per_token")


@dataclass(frozen=True)
class Setting:
    """Where a genome's costs are asked for.

    Attributes:
        is_causal: whether every call is; what it hides is computed all the same.
        calibration: of the predicted time, by nas.costs.timing; empty where none was measured.
        context: tokens after which costs of decoding are counted; None for the model's own.
    """

    sizes: ModelSizes
    qkv_bias: bool
    is_causal: bool
    calibration: Mapping[str, Any]
    context: int | None = None

    def resolve(self, genome: Genome) -> ResolvedGenome:
        """The genome in normal form at these sizes; GenomeError where it does not exist there."""
        return resolve(genome, self.sizes, self.is_causal)

    @property
    def decoded(self) -> ModelSizes:
        """The sizes at which costs of decoding are counted."""
        return self.sizes._replace(tokens=self.context or self.sizes.tokens)


@dataclass(frozen=True)
class CostMeasure:
    """A cost of a genome, all attention layers of a backbone together.

    Attributes:
        of: from a resolved genome and the setting that it is resolved at.
    """

    name: str
    unit: str
    about: str
    of: Callable[[ResolvedGenome, Setting], float]


# A cost of one layer, from its plan and the setting.
Measure = Callable[["Plan", Setting], float]
COSTS: Registry[CostMeasure] = Registry(
    "cost", "nas.costs", modules=("nas.costs.costs", "nas.costs.timing")
)


def costs_of(
    resolved: ResolvedGenome, setting: Setting, names: Iterable[str] | None = None
) -> dict[str, float]:
    """The costs of a genome by name, by default those that take no trace and no calibration.

    Args:
        resolved: at the setting's sizes.

    Raises:
        ConfigError: there is no such cost.
        ViolationError: the genome does not type-check.
    """
    names = DEFAULT_COSTS if names is None else names
    return {name: float(COSTS.get(name).of(resolved, setting)) for name in names}


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
    """

    macs: int
    attention_macs: int
    elementwise: int
    params: int
    kv_cache_bytes_per_token: int
    seed_compatible_macs: int

    def to_dict(self) -> dict[str, int]:
        """The JSON answer of ``nas cost``."""
        return asdict(self)


def attention_cost(
    genome: Genome, *, dim: int, heads: int, tokens: int, qkv_bias: bool = False
) -> Cost:
    """Count one attention block of a backbone with ``dim`` channels and ``heads`` heads.

    Raises:
        GenomeError, ViolationError: the mechanism does not exist at this size.
        NasError: it uses an operation whose cost nobody has stated.
    """
    sizes = ModelSizes(dim, heads, 1, tokens)
    plan = make_plan(genome, sizes)
    macs, elementwise = _counted(plan, sizes, qkv_bias)
    computed = computed_macs(plan, sizes)
    return Cost(
        macs=computed.all,
        attention_macs=computed.all - computed.tokens,
        elementwise=elementwise,
        params=count_parameters(plan, dim, heads, qkv_bias),
        kv_cache_bytes_per_token=math.ceil(kv_cache_bytes_per_token(plan, sizes)),
        seed_compatible_macs=_seed_compatible(dense_plan(plan), sizes, macs),
    )


def _counted(plan: Plan, sizes: ModelSizes, qkv_bias: bool) -> tuple[int, int]:
    """Multiply-adds of the reference form, and elements that the compiled block touches.

    Raises:
        NasError: the multiply-adds differ from the closed formulas.
    """
    dense, (dim, heads, _, tokens) = dense_plan(plan), sizes
    counts = count_operations(dense, dim, heads, tokens, qkv_bias)
    macs = sum(count for name, count in counts.items() if name != ELEMENTWISE)
    expected = closed_form_macs(dense, sizes)
    if macs != expected:
        raise NasError(
            f"the MACs counted, {macs}, differ from the closed formulas of "
            f"{', '.join(sorted({s.primitive.name for s in plan.steps}))}: {expected}; "
            "expected a primitive's macs to state what its module computes."
        )
    elementwise = counts[ELEMENTWISE]
    if hidden := tokens**2 - computed_pairs(plan, tokens):
        elementwise -= hidden * _elementwise_per_pair(dense, dim, heads, qkv_bias)
    return macs, elementwise


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


def kv_cache_bytes_per_token(plan: Plan, sizes: ModelSizes) -> float:
    """What a ``Decoder`` for a context of ``sizes.tokens`` holds after these, for each of them.

    Every number counts as 16 bits, sums too, which a decoder holds in 32. See
    nas.costs.decoding.memory for what is held; of a mechanism that sees later tokens, and so
    cannot be decoded, what its keys and values take.
    """
    return BYTES_PER_NUMBER * memory_of(plan, sizes).numbers(sizes) / sizes.tokens


def _seed_compatible(plan: Plan, sizes: ModelSizes, macs: int) -> int:
    """Plain fvcore's view: our exact products, without what the published code hides from it.

    It sees no convolution (padding 'same' is no operation it knows) and no sparsemax; norms
    count 5 an element, in the block as around it.
    """
    dim, heads, _, tokens = sizes
    hidden, norms = 0, 2 * tokens * dim
    for step in plan.steps:
        own = plan.call_sizes(step, dim, heads, tokens)
        if step.primitive.name == "convolutional_score":
            hidden += step.primitive.macs(own, step.params) - own.heads * tokens**2 * own.width
        if step.primitive.name == "layer_norm":
            norms += own.heads * tokens * own.width
    return macs - hidden + 5 * norms + 8 * tokens * dim**2


def summed_layers(resolved: ResolvedGenome, layer: Callable[[ResolvedGenome], float]) -> float:
    """A layer's cost over a backbone, standard attention where the placement has it."""
    depth = resolved.sizes.depth
    count = len(layers_with_mechanism(resolved.genome.placement, depth))
    total = count * layer(resolved)
    if count == depth:
        return total
    return total + (depth - count) * layer(standard_attention(resolved.sizes, resolved.is_causal))


def _cost(name: str, unit: str, about: str) -> Callable[[Measure], Measure]:
    """Register what a function says of a layer, for all of them."""

    def register(measure: Measure) -> Measure:
        def of(resolved: ResolvedGenome, setting: Setting) -> float:
            return summed_layers(resolved, lambda layer: measure(layer.plan, setting))

        COSTS.register(name)(CostMeasure(name, unit, about, of))
        return measure

    return register


@_cost("macs", "MACs", "multiply-adds of an example, as they run")
def _macs(plan: Plan, setting: Setting) -> float:
    return computed_macs(plan, setting.sizes, setting.is_causal).all


@_cost("params", "parameters", "learned numbers")
def _params(plan: Plan, setting: Setting) -> float:
    return count_parameters(plan, setting.sizes.dim, setting.sizes.heads, setting.qkv_bias)


@_cost("kv_cache_bytes_per_token", "bytes", "what decoding holds of a token of its context")
def _kv_cache(plan: Plan, setting: Setting) -> float:
    return kv_cache_bytes_per_token(plan, setting.decoded)


@_cost("elementwise", "elements", "elements that pointwise operations touch")
def _elementwise(plan: Plan, setting: Setting) -> float:
    return _counted(plan, setting.sizes, setting.qkv_bias)[1]
