"""What a mechanism costs: multiply-adds, parameters, caches; of a block and of a backbone.

Multiply-adds are counted on the reference form (nas.counting), and equal the closed formulas that
primitives state of themselves; what differs is an error.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from nas.compiler import make_plan
from nas.compiler.decoding import kept_for_later
from nas.counting import ELEMENTWISE, TRACED_LENGTHS, count_operations
from nas.errors import NasError
from nas.genome import Visibility, layers_with_mechanism
from nas.mechanisms import mechanism
from nas.primitives.base import Kind
from nas.types import Type

if TYPE_CHECKING:
    from nas.compiler import Plan
    from nas.genome import Genome

BYTES_PER_NUMBER: Final = 2  # caches are kept in 16 bits


@dataclass(frozen=True)
class Cost:
    """The cost of one attention block at batch 1.

    Attributes:
        macs: multiply-adds of the whole block, projections included.
        attention_macs: those of them that grow with pairs of tokens: scores and aggregation. A
            window and global tokens count the pairs that they allow; causality is not discounted.
        elementwise: elements that pointwise operations, reductions and norms touch.
        params: learned numbers.
        kv_cache_bytes_per_token: what decoding keeps of a token, at 16 bits a number.
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
    plan = make_plan(genome)
    # The reference form computes every pair; a mask of the mechanism's own is discounted after.
    dense = make_plan(replace(plan.genome, visibility=Visibility()))
    counts, params = count_operations(dense, dim, heads, tokens, qkv_bias)
    macs = sum(count for name, count in counts.items() if name != ELEMENTWISE)
    expected = closed_form_macs(dense, dim, heads, tokens)
    if macs != expected:
        raise NasError(
            f"the MACs counted, {macs}, differ from the closed formulas of "
            f"{', '.join(sorted({s.primitive.name for s in plan.steps}))}: {expected}; "
            "expected a primitive's macs to state what its module computes."
        )
    elementwise = counts[ELEMENTWISE]
    if plan.is_windowed:
        hidden = tokens**2 - plan.genome.visibility.allowed_pairs(tokens)
        elementwise -= hidden * _elementwise_per_pair(dense, dim, heads, qkv_bias)
    allowed = closed_form_macs(plan, dim, heads, tokens)
    return Cost(
        macs=allowed,
        attention_macs=allowed - closed_form_macs(plan, dim, heads, tokens, pairs=0),
        elementwise=elementwise,
        params=params,
        kv_cache_bytes_per_token=kv_cache_bytes_per_token(plan, dim, heads),
        seed_compatible_macs=_seed_compatible(dense, dim, heads, tokens, macs),
    )


def _elementwise_per_pair(plan: Plan, dim: int, heads: int, qkv_bias: bool) -> int:
    """What each pair of query and key adds to the elementwise count, exactly."""
    few, more, most = (
        count_operations(plan, dim, heads, n, qkv_bias)[0][ELEMENTWISE] for n in TRACED_LENGTHS
    )
    step = TRACED_LENGTHS[1] - TRACED_LENGTHS[0]
    return (few - 2 * more + most) // (2 * step**2)


def backbone_cost(
    genome: Genome, *, dim: int, heads: int, depth: int, tokens: int, qkv_bias: bool = False
) -> dict[str, int]:
    """The attention layers of a backbone together, standard ones where the placement has them.

    Returns:
        macs, params, kv_cache_bytes_per_token, elementwise, summed over ``depth`` layers.
    """
    own = len(layers_with_mechanism(genome.placement, depth))
    sizes = {"dim": dim, "heads": heads, "tokens": tokens, "qkv_bias": qkv_bias}
    cost = attention_cost(genome, **sizes).to_dict()  # type: ignore[arg-type]
    rest = dict.fromkeys(cost, 0)
    if own < depth:
        rest = attention_cost(mechanism("mha").genome, **sizes).to_dict()  # type: ignore[arg-type]
    names = ("macs", "params", "kv_cache_bytes_per_token", "elementwise")
    return {name: own * cost[name] + (depth - own) * rest[name] for name in names}


def closed_form_macs(
    plan: Plan, dim: int, heads: int, tokens: int, *, pairs: int | None = None
) -> int:
    """The MACs of a block by the formulas that its primitives state; equal to the count.

    Args:
        pairs: of query and key that have a score; by default those that the genome allows. A
            causal mask is not discounted.
    """
    total = 0
    allowed = plan.genome.visibility.allowed_pairs(tokens) if pairs is None else pairs
    for stream in plan.streams:
        if stream.is_projected:
            width = stream.type.head_count(heads) * stream.type.channels(dim, heads)
            total += tokens * dim * width
    for step in plan.steps:
        sizes = replace(plan.call_sizes(step, dim, heads, tokens), allowed=allowed)
        total += step.primitive.macs(sizes, step.params)
    if plan.genome.projections.has_wo:
        total += tokens * dim * plan.merged_width(dim, heads)
    return total


def kv_cache_bytes_per_token(plan: Plan, dim: int, heads: int) -> int:
    """What causal decoding keeps of each token for the keys and values of later ones.

    Streams that they come from are kept projected; those without projection share the token
    itself. What is computed from more than its own token's streams is kept as it is.
    """
    types: dict[Any, Type] = {stream.name: stream.type for stream in plan.streams}
    for step in plan.steps:
        types[step.index] = Type(Kind.TOKENS, step.heads, step.width)
    raw = {stream.name for stream in plan.streams if not stream.is_projected}
    kept = kept_for_later(plan)
    numbers = dim if kept & raw else 0
    for ref in kept - raw:
        numbers += types[ref].head_count(heads) * types[ref].channels(dim, heads)
    return BYTES_PER_NUMBER * numbers


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
