"""What a mechanism costs: multiply-adds by fvcore on the reference form, and what goes beside.

fvcore counts a multiply-add as one. It ignores or miscounts much of what attention is made of
(broadcast products, einsum, softmax, activations: all zero), so every operation here has a
handle of ours: products are counted exactly, elementwise work is counted apart, shape
operations are listed as free, and an operation that nobody listed is an error. The only room
that knows fvcore.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn

from nas.compiler import make_plan
from nas.compiler.decoding import kept_for_later
from nas.compiler.interpreter import ReferenceAttention
from nas.errors import GenomeError, NasError
from nas.genome import Visibility, layers_with_mechanism
from nas.mechanisms import mechanism
from nas.primitives.base import Kind
from nas.types import Type

if TYPE_CHECKING:
    from nas.compiler import Plan
    from nas.genome import Genome

with warnings.catch_warnings():
    # fvcore compiles a loss of its own with TorchScript, whose deprecation torch announces.
    warnings.simplefilter("ignore")
    from fvcore.nn import FlopCountAnalysis

ELEMENTWISE: Final = "elementwise"
BYTES_PER_NUMBER: Final = 2  # caches are kept in 16 bits
_TRACED_LENGTHS: Final = (8, 12, 16)
_COMPUTED_NUMBERS: Final = 2**18  # scores and weights of a block that is counted by running it

_POINTWISE: Final = [
    "abs",
    "add",
    "amax",
    "clamp",
    "clamp_min",
    "cos",
    "cumsum",
    "div",
    "elu",
    "eq",
    "erf",
    "exp",
    "ge",
    "gelu",
    "gt",
    "le",
    "leaky_relu",
    "log",
    "log_softmax",
    "logsumexp",
    "lt",
    "masked_fill",
    "max",
    "maximum",
    "mean",
    "minimum",
    "mul",
    "native_layer_norm",
    "ne",
    "neg",
    "pow",
    "reciprocal",
    "relu",
    "rsqrt",
    "rsub",
    "sigmoid",
    "silu",
    "sin",
    "softmax",
    "softplus",
    "sort",
    "sqrt",
    "square",
    "sub",
    "sum",
    "tanh",
    "topk",
    "where",
    "layer_norm",
    "rms_norm",
    "group_norm",
    "batch_norm",
    "bitwise_not",
    "__and__",
]
_SHAPE: Final = [
    "unflatten",
    "pad",
    "repeat_interleave",
    "expand_as",
    "numel",
    "alias",
    "lift_fresh",
    "tril",
    "triu",
]


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
        count_operations(plan, dim, heads, n, qkv_bias)[0][ELEMENTWISE] for n in _TRACED_LENGTHS
    )
    step = _TRACED_LENGTHS[1] - _TRACED_LENGTHS[0]
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


def count_operations(
    plan: Plan, dim: int, heads: int, tokens: int, qkv_bias: bool = False
) -> tuple[Counter[str], int]:
    """Multiply-adds of the reference form by operation, and its learned numbers.

    Args:
        plan: of a mechanism without window; the reference form computes every pair.

    Returns:
        Under ``ELEMENTWISE`` the elements that pointwise operations touch, which are no
        multiply-adds.

    Raises:
        GenomeError: the mechanism does not exist at this size.
        NasError: it uses an operation whose cost nobody has stated.
    """
    # A small block is computed sooner than torch says of what shapes its tensors would be.
    is_small = heads * tokens**2 + 4 * dim**2 <= _COMPUTED_NUMBERS
    device = "cpu" if is_small else "meta"
    module = _build(device, plan, dim, heads, qkv_bias)
    params = sum(p.numel() for p in module.parameters())
    if is_small or not any(isinstance(m, nn.Conv1d) for m in module.modules()):
        return _trace(module, torch.zeros(1, tokens, dim, device=device)), params
    # torch cannot trace a convolution without data. Counts are polynomials of degree two in the
    # length, so three short traces give the long one exactly.
    module = _build("cpu", plan, dim, heads, qkv_bias)
    lengths = _TRACED_LENGTHS
    traces = [_trace(module, torch.zeros(1, n, dim)) for n in lengths]
    names = set().union(*traces)
    return Counter(
        {name: _extrapolate(lengths, [t[name] for t in traces], tokens) for name in names}
    ), params


def _extrapolate(lengths: tuple[int, ...], counts: list[int], tokens: int) -> int:
    """The value at ``tokens`` of the polynomial through three evenly spaced counts."""
    step = lengths[1] - lengths[0]
    first, second = counts[1] - counts[0], counts[2] - 2 * counts[1] + counts[0]
    at = tokens - lengths[0]
    return counts[0] + at * first // step + at * (at - step) * second // (2 * step**2)


def _build(device: str, plan: Plan, dim: int, heads: int, qkv_bias: bool = False) -> nn.Module:
    with torch.device(device), torch.random.fork_rng(devices=[]):
        return ReferenceAttention(plan, dim, heads, qkv_bias).eval()


class _Whole(nn.Module):
    """A block with all its projections as results: a trace drops what no result needs.

    A score may leave an operand unread (QANA without its skip); the block computes it all the same.
    """

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block
        self.seen: list[Tensor] = []
        for name in ("wq", "wk", "wv"):
            if hasattr(block, name):
                block.get_submodule(name).register_forward_hook(self._keep)

    def _keep(self, module: nn.Module, given: Any, result: Tensor) -> None:
        self.seen.append(result)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """The block's output, then its projected streams."""
        self.seen.clear()
        return (self.block(x), *self.seen)


def _trace(module: nn.Module, x: Tensor) -> Counter[str]:
    analysis = FlopCountAnalysis(_Whole(module), (x,)).set_op_handle(**_HANDLES)
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
    with torch.no_grad(), warnings.catch_warnings():
        # Tracing announces its own deprecation and asks about branches on shapes.
        warnings.simplefilter("ignore")
        try:
            counts: Counter[str] = analysis.by_operator()
        except ValueError as error:  # a module's own word about the input, such as its length
            raise GenomeError(f"{error}.") from None
        unknown = analysis.unsupported_ops()
    if unknown:
        raise NasError(
            f"nobody has stated what {', '.join(sorted(unknown))} costs; expected an entry in "
            "nas/cost.py for each operation of a primitive."
        )
    return counts


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


def _numel(value: Any) -> int:
    sizes = value.type().sizes() if value.isCompleteTensor() else None
    return math.prod(sizes) if sizes else int(sizes is not None)


def _product(inputs: list[Any], outputs: list[Any]) -> Counter[str]:
    """A matrix product, broadcast or not: each output sums over the last axis of the left."""
    left = inputs[0].type().sizes()
    return Counter({"matmul": _numel(outputs[0]) * left[-1]})


def _einsum(inputs: list[Any], outputs: list[Any]) -> Counter[str]:
    """A product of two operands: one multiply-add for each value of all indices together."""
    equation = inputs[0].toIValue()
    operands = [value.type().sizes() for value in inputs[1].node().inputs()]
    terms = equation.partition("->")[0].replace(" ", "").split(",")
    if "." in equation or len(terms) != 2:
        raise NasError(
            f"einsum {equation!r} cannot be counted; expected two operands and no ellipsis."
        )
    sizes = {
        i: n
        for term, own in zip(terms, operands, strict=True)
        for i, n in zip(term, own, strict=True)
    }
    return Counter({"einsum": math.prod(sizes.values())})


def _fused_attention(inputs: list[Any], outputs: list[Any]) -> Counter[str]:
    """Fused attention: scores and aggregation, n² of each head's two widths."""
    query, key, value = (v.type().sizes() for v in inputs[:3])
    pairs = math.prod(query[:-1]) * key[-2]
    return Counter({"attention": pairs * (query[-1] + value[-1])})


def _addcmul(inputs: list[Any], outputs: list[Any]) -> Counter[str]:
    """A sum of scaled tensors: one multiply-add an element."""
    return Counter({"addcmul": _numel(outputs[0])})


def _elementwise(inputs: list[Any], outputs: list[Any]) -> Counter[str]:
    """Elements of the largest operand or result."""
    sizes = [_numel(v) for v in [*inputs, outputs[0]] if str(v.type()) != "None" and _is_tensor(v)]
    return Counter({ELEMENTWISE: max(sizes, default=0)})


def _is_tensor(value: Any) -> bool:
    return bool(value.isCompleteTensor())


_HANDLES: Final[dict[str, Any]] = (
    {f"aten::{name}": _elementwise for name in _POINTWISE}
    | {f"aten::{name}": None for name in _SHAPE}
    | {"aten::matmul": _product, "aten::mm": _product, "aten::bmm": _product}
    | {"aten::addcmul": _addcmul, "aten::einsum": _einsum}
    | {"aten::scaled_dot_product_attention": _fused_attention}
)

# fvcore logs what it skips; we raise instead.
logging.getLogger("fvcore").setLevel(logging.ERROR)
