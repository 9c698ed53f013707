"""Operation counts by fvcore: each distinct call of a plan is traced once, and counts are summed.

fvcore counts a multiply-add as one operation, and by default ignores broadcast products, einsum,
softmax and activations. The rules of this module count products exactly and elementwise work
separately. Elementwise are the operations that torch tags as pointwise, those listed here, and
those that a primitive declares as ``elementwise``. Shape operations are free, and an operation
without a rule is an error. No other module imports fvcore.

Multiply-adds are those of the calls of a compiled block: a kernel call (nas.compiler.lowering) is
counted as its function runs on a CPU in 32 bits, so that linear attention counts the order in which
it multiplies. Pairs that a causal mask or a window hides are computed and counted.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple, cast

import torch
from torch import Tensor, nn

from nas.common.errors import GenomeError, NasError
from nas.compiler import Plan
from nas.compiler.interpreter import check_sizes
from nas.compiler.kernels import fast_class
from nas.compiler.kernels.gated import forgetting_attention, gated_linear_attention
from nas.compiler.kernels.means import linear_attention, visible_mean
from nas.compiler.kernels.runtime import dot_product_attention
from nas.compiler.lowering import Lowered, live, lower
from nas.compiler.plan import Step, plan_as_written
from nas.genome import ModelSizes
from nas.genome.primitives import Kind
from nas.genome.types import Type

with warnings.catch_warnings():
    # Importing fvcore compiles TorchScript, which raises a deprecation warning.
    warnings.simplefilter("ignore")
    from fvcore.nn import FlopCountAnalysis

Shape = tuple[int, ...]
Arguments = tuple[tuple[str, Any], ...]

ELEMENTWISE: Final = "elementwise"
TRACED_LENGTHS: Final = (8, 12, 16, 20)  # evenly spaced; they determine a cubic polynomial
_STEP: Final = TRACED_LENGTHS[1] - TRACED_LENGTHS[0]
_COMPUTED_NUMBERS: Final = 2**18  # largest call that is traced on the CPU

# Elementwise operations that torch does not tag as pointwise, and those that fvcore ignores.
_ELEMENTWISE: Final = """
    all amax amin any batch_norm cumprod cumsum flip group_norm index_add layer_norm
    linalg_vector_norm log_sigmoid log_softmax logcumsumexp logsumexp mean native_layer_norm norm
    prod repeat rms_norm rsub softmax sort std sum topk var
    __and__ __or__ __xor__ bitwise_not clamp clamp_ eq floor gather ge gt masked_fill max relu relu_
    remainder
"""
_SHAPE: Final = """
    mT index_select unflatten pad repeat_interleave expand_as view_as numel alias lift_fresh tril
    triu ones_like new_ones eye
"""


class Computed(NamedTuple):
    """Multiply-adds that a block executes.

    Attributes:
        all: all multiply-adds.
        tokens: the multiply-adds of projections and of other maps of single tokens.
    """

    all: int
    tokens: int


def computed_macs(plan: Plan, sizes: ModelSizes, is_causal: bool = False) -> Computed:
    """Return the multiply-adds of a compiled block at batch size 1.

    Raises:
        GenomeError: the mechanism does not exist at this size.
        NasError: the mechanism has an operation without a counting rule.
    """
    tokens, pairs = _projections(plan, sizes, live(plan, lower(plan))), 0
    for call in calls(plan):
        macs = total_macs(profile(plan, call, sizes, is_causal=is_causal))
        if isinstance(call, Lowered) or call.is_paired:
            pairs += macs
        else:
            tokens += macs
    return Computed(tokens + pairs, tokens)


def elementwise(plan: Plan, sizes: ModelSizes, qkv_bias: bool = False) -> int:
    """Count the elements that pointwise operations, reductions and norms read or write.

    An operation counts as many elements as its largest operand or result has. Steps are counted one
    by one, also those that a kernel call replaces.

    Raises:
        GenomeError: the mechanism does not exist at this size.
        NasError: the mechanism has an operation without a counting rule.
    """
    steps = plan_as_written(plan.genome).steps
    merged = sizes.tokens * token_width(plan.output, sizes.dim, sizes.heads)
    added = merged if plan.genome.projections.merge == "sum" else 0
    return added + sum(
        profile(plan, step, sizes, qkv_bias, is_fast=False)[ELEMENTWISE] for step in steps
    )


def seed_compatible_macs(plan: Plan, sizes: ModelSizes, qkv_bias: bool = False) -> int:
    """Return the MACs that fvcore without this module's rules counts for an encoder layer.

    The layer's attention is the mechanism. It has biases, layer norms that count 5 per element, and
    a feed-forward width of 4 ``dim``. The number leaves out operations that fvcore does not count,
    such as convolutions with padding 'same' and sparsemax.
    """
    dim, heads, _, tokens = sizes
    macs, norms = _projections(plan, sizes, {s.name for s in plan.streams}), 2 * tokens * dim
    for step in plan.steps:
        counts = profile(plan, step, sizes, qkv_bias, is_fast=False)
        size = plan.call_sizes(step, dim, heads, tokens)
        if step.primitive.name == "convolutional_score":
            macs += size.heads * tokens**2 * size.width
        else:
            macs += total_macs(counts)
        if step.primitive.name == "layer_norm":
            norms += size.heads * tokens * size.width
    return macs + 5 * norms + 8 * tokens * dim**2


def calls(plan: Plan) -> Iterator[Step | Lowered]:
    """Yield the calls of a compiled block: steps that run by themselves, and kernel calls."""
    lowered = lower(plan)
    needed = live(plan, lowered)
    for step in plan.steps:
        if step.index in lowered:
            yield lowered[step.index]
        elif step.index in needed:
            yield step


def total_macs(counts: Counter[str]) -> int:
    """Return the multiply-adds of all operations."""
    return sum(count for name, count in counts.items() if name != ELEMENTWISE)


def profile(
    plan: Plan,
    call: Step | Lowered,
    sizes: ModelSizes,
    qkv_bias: bool = False,
    *,
    is_causal: bool = False,
    is_fast: bool = True,
) -> Counter[str]:
    """Count the operations of one call at batch size 1.

    Args:
        is_fast: whether a step runs by its faster class, as in a compiled block.

    Returns:
        Multiply-adds by operation; the entry ``ELEMENTWISE`` is the number of elements that
        pointwise operations read or write.

    Raises:
        GenomeError: the call is impossible at this size.
        NasError: the call has an operation without a counting rule.
    """
    dim, heads, _, tokens = sizes
    check_sizes(dim, heads)
    if isinstance(call, Lowered):
        return _kernel_counts(*_kernel(plan, call, sizes, is_causal))
    primitive = call.primitive
    fast: Any = fast_class(primitive.module)
    module: Any = fast if is_fast and getattr(fast, "is_traceable", False) else primitive.module
    arguments = plan.sizes(call, dim, heads, qkv_bias) | call.params
    count = call.type.head_count(heads)
    shapes = tuple(_shape(o.type, count, sizes) for o in call.operands)
    x = (1, tokens, dim) if "x" in primitive.extras else None
    return _module_counts(module, tuple(arguments.items()), shapes, x, primitive.elementwise)


def _shape(type_: Type, heads: int, sizes: ModelSizes) -> Shape:
    if type_.kind.is_paired:
        return (1, heads, sizes.tokens, sizes.tokens)
    width = 1 if type_.kind is Kind.GATES else type_.channels(sizes.dim, sizes.heads)
    return (1, heads, sizes.tokens, width)


def _kernel(
    plan: Plan, call: Lowered, sizes: ModelSizes, is_causal: bool
) -> tuple[Callable[..., Tensor], tuple[Shape, ...], bool, Arguments]:
    """Return the function of a kernel call, its operands' shapes, and its further arguments.

    The third value is whether the call gets a mask for each query.
    """
    causal = is_causal and not plan.is_windowed  # the mask of a window is causal itself
    values = call.sum.operands[1].type
    options: dict[str, Any] = {"is_causal": causal}
    own = values.head_count(sizes.heads)
    if call.score is None:
        options["queries"] = sizes.tokens
        shape = _shape(values, own, sizes)
        return visible_mean, (shape,), plan.is_windowed, tuple(options.items())
    heads = call.sum.type.head_count(sizes.heads)
    function: Callable[..., Tensor] = dot_product_attention
    is_grouped = call.is_linear and not call.is_gated  # sums are shared by heads of queries
    query, key, *gates = (operand.type for operand in call.score.operands)
    if call.is_linear:
        function = linear_attention if is_grouped else gated_linear_attention
        options["divide"] = call.is_divided
    elif call.decay is not None:
        function, gates = forgetting_attention, [call.decay.operands[1].type]
    keys = key.head_count(sizes.heads) if is_grouped else heads
    *rest, width = _shape(values, own if is_grouped else heads, sizes)
    shapes = [_shape(query, heads, sizes), _shape(key, keys, sizes)]
    shapes.append((*rest, width + call.is_ratio))  # the sum of weights is a further feature
    shapes += [_shape(each, heads, sizes) for each in gates[:1]]
    return function, tuple(shapes), plan.is_windowed, tuple(options.items())


@lru_cache(maxsize=4096)
def _kernel_counts(
    function: Any, shapes: tuple[Shape, ...], has_mask: bool, options: Arguments
) -> Counter[str]:
    tokens = shapes[0][2]
    device = _device(shapes)
    mask = torch.ones(tokens, tokens, dtype=torch.bool, device=device) if has_mask else None
    return count_calls(_Kernel(function, mask, dict(options)), _zeros(shapes, device))


class _Kernel(nn.Module):
    """A call of a kernel's function with operands and, as fourth operand, forget gates."""

    def __init__(self, function: Callable[..., Tensor], mask: Tensor | None, options: Any) -> None:
        super().__init__()
        self.function, self.mask, self.options = function, mask, options

    def forward(self, *operands: Tensor) -> Tensor:
        named = {"gates": operands[3]} if len(operands) > 3 else {}
        return self.function(*operands[:3], mask=self.mask, **named, **self.options)


@lru_cache(maxsize=4096)
def _module_counts(
    module: Any,
    arguments: Arguments,
    shapes: tuple[Shape, ...],
    x: Shape | None,
    declared: tuple[str, ...],
) -> Counter[str]:
    def traced(shapes: tuple[Shape, ...], x: Shape | None, device: str) -> Counter[str]:
        with torch.device(device), torch.random.fork_rng(devices=[]):
            try:
                called = _Called(module(**dict(arguments)).eval(), x is not None)
            except ValueError as error:
                raise GenomeError(f"{error}.") from None
        return count_calls(called, _zeros((*shapes, *([x] if x else [])), device), declared)

    device = _device(shapes)
    with torch.device("meta"):
        parts = module(**dict(arguments)).modules()
    if device == "cpu" or not any(isinstance(part, nn.Conv1d | nn.Conv2d) for part in parts):
        return traced(shapes, x, device)
    # torch cannot trace a convolution without data. Counts are polynomials of degree three at most
    # in the length, so four short traces give the long one exactly.
    tokens = shapes[0][2]

    def short(shape: Shape, length: int) -> Shape:
        return (*shape[:2], *(length if size == tokens else size for size in shape[2:]))

    traces = [
        traced(tuple(short(s, n) for s in shapes), None if x is None else (1, n, x[2]), "cpu")
        for n in TRACED_LENGTHS
    ]
    names = set().union(*traces)
    return Counter({name: _extrapolate([t[name] for t in traces], tokens) for name in names})


class _Called(nn.Module):
    """A module called with its operands and, if it reads it, the block's input as the last."""

    def __init__(self, module: nn.Module, reads_input: bool) -> None:
        super().__init__()
        self.module, self.reads_input = module, reads_input

    def forward(self, *operands: Tensor) -> Tensor:
        if not self.reads_input:
            return cast("Tensor", self.module(*operands))
        return cast("Tensor", self.module(*operands[:-1], x=operands[-1]))


def _device(shapes: Iterable[Shape]) -> str:
    """Return the device of a trace: running a small call is faster than propagating shapes."""
    return "cpu" if max(map(math.prod, shapes)) <= _COMPUTED_NUMBERS else "meta"


def _zeros(shapes: Iterable[Shape], device: str) -> tuple[Tensor, ...]:
    return tuple(torch.zeros(shape, device=device) for shape in shapes)


def token_width(type_: Type, dim: int, heads: int) -> int:
    """Return the number of elements per token, over all heads, of a tensor of this type."""
    return type_.head_count(heads) * type_.channels(dim, heads)


def _projections(plan: Plan, sizes: ModelSizes, read: Iterable[Any]) -> int:
    """Return the multiply-adds of W_O and of the projections of the streams in ``read``."""
    names = set(read)
    streams = (s for s in plan.streams if s.is_projected and s.name in names)
    width = sum(token_width(stream.type, sizes.dim, sizes.heads) for stream in streams)
    if plan.genome.projections.has_wo:
        width += plan.merged_width(sizes.dim, sizes.heads)
    return sizes.tokens * sizes.dim * width


def _extrapolate(counts: list[int], tokens: int) -> int:
    """Return the count at a length, by the polynomial through the counts at ``TRACED_LENGTHS``."""
    distance = Fraction(tokens - TRACED_LENGTHS[0], _STEP)
    total, factor, differences = Fraction(0), Fraction(1), counts
    for order in range(len(counts)):  # Newton's forward differences
        total += factor * differences[0]
        differences = [after - before for before, after in pairwise(differences)]
        factor *= (distance - order) / (order + 1)
    return int(total)


def count_parameters(plan: Plan, dim: int, heads: int, qkv_bias: bool = False) -> int:
    """Count the parameters of a block. Counts are cached for each kind of module.

    Raises:
        GenomeError: the mechanism does not exist at this size.
    """
    check_sizes(dim, heads)
    streams = (token_width(s.type, dim, heads) for s in plan.streams if s.is_projected)
    total = sum(streams) * (dim + qkv_bias)
    # Large modules are built on the meta device, whose first use takes seconds.
    device = "cpu" if dim <= 512 else "meta"
    for step in plan.steps:
        module: Any = step.primitive.module
        arguments = plan.sizes(step, dim, heads, qkv_bias) | step.params
        total += _module_parameters(module, tuple(arguments.items()), device)
    wo = dim * (plan.merged_width(dim, heads) + 1) if plan.genome.projections.has_wo else 0
    return total + wo


@lru_cache(maxsize=4096)
def _module_parameters(module: Any, arguments: tuple[tuple[str, Any], ...], device: str) -> int:
    with torch.device(device), torch.random.fork_rng(devices=[]):
        try:
            return sum(p.numel() for p in module(**dict(arguments)).parameters())
        except ValueError as error:
            raise GenomeError(f"{error}.") from None


def count_calls(
    module: nn.Module, inputs: tuple[Tensor, ...], declared: Iterable[str] = ()
) -> Counter[str]:
    """Count the operations that a module executes for its inputs.

    Args:
        declared: names of operations without another rule that count their elements.

    Raises:
        GenomeError: the module raises ValueError for the inputs.
        NasError: the module has an operation without a counting rule.
    """
    analysis = FlopCountAnalysis(module, inputs)
    analysis.set_op_handle(**(dict.fromkeys(declared, _elementwise) | _HANDLES))
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
    with torch.no_grad(), warnings.catch_warnings():
        # Tracing warns about its deprecation and about branches on shapes.
        warnings.simplefilter("ignore")
        try:
            counts: Counter[str] = analysis.by_operator()
            pointwise = filter(_is_pointwise, analysis.unsupported_ops())
            if found := dict.fromkeys(pointwise, _elementwise):
                _HANDLES.update(found)
                counts = analysis.set_op_handle(**found).by_operator()
        except ValueError as error:  # raised by a module, for example about the length
            raise GenomeError(f"{error}.") from None
    if unknown := analysis.unsupported_ops():
        owner = type(getattr(module, "module", module)).__name__
        names = ", ".join(sorted(unknown))
        raise NasError(
            f"there is no cost rule for operation {names} of {owner}; expected "
            f"torch's pointwise operations, or elementwise={tuple(sorted(unknown))} among the "
            "declarations of the primitive, if the work is proportional to the elements."
        )
    return counts


def _is_pointwise(operation: str) -> bool:
    """Whether torch tags an operation, such as "aten::atan", as pointwise."""
    namespace, _, name = operation.partition("::")
    packet: Any = getattr(getattr(torch.ops, namespace), name, None)
    names = packet.overloads() if hasattr(packet, "overloads") else []
    return any(torch.Tag.pointwise in getattr(packet, each).tags for each in names)


def _numel(value: Any) -> int:
    sizes = value.type().sizes() if value.isCompleteTensor() else None
    return math.prod(sizes) if sizes else int(sizes is not None)


def _product(inputs: list[Any], outputs: list[Any]) -> Counter[str]:
    """Count a matrix product: each output element sums over the last axis of the left operand."""
    left = inputs[0].type().sizes()
    return Counter({"matmul": _numel(outputs[0]) * left[-1]})


def _einsum(inputs: list[Any], outputs: list[Any]) -> Counter[str]:
    """Count an einsum of two operands: one multiply-add for each combination of all indices."""
    equation = inputs[0].toIValue()
    operands = [value.type().sizes() for value in inputs[1].node().inputs()]
    terms = equation.partition("->")[0].replace(" ", "").split(",")
    if len(terms) != 2:
        raise NasError(f"einsum {equation!r} cannot be counted; expected two operands.")
    sizes: dict[Any, int] = {}
    for term, shape in zip(terms, operands, strict=True):
        letters = term.removeprefix("...")
        leading = range(len(shape) - len(letters))  # the axes of an ellipsis, broadcast
        for name, size in zip([*leading, *letters], shape, strict=True):
            sizes[name] = max(size, sizes.get(name, 1))
    return Counter({"einsum": math.prod(sizes.values())})


def _fused_attention(inputs: list[Any], outputs: list[Any]) -> Counter[str]:
    """Count fused attention: each pair of query and key multiplies a key and a value."""
    query, key, value = (v.type().sizes() for v in inputs[:3])
    pairs = math.prod(query[:-1]) * key[-2]
    return Counter({"attention": pairs * (query[-1] + value[-1])})


def _solve(inputs: list[Any], outputs: list[Any]) -> Counter[str]:
    """Count the solution of a triangular system whose diagonal is 1."""
    right = inputs[1].type().sizes()
    return Counter({"solve": math.prod(right) * (right[-2] - 1) // 2})


def _solve_square(inputs: list[Any], outputs: list[Any]) -> Counter[str]:
    """Count the solutions of square systems by elimination, each with one right side."""
    sizes = inputs[0].type().sizes()
    width = sizes[-1]
    each = width * (width**2 - 1) // 3 + width**2
    return Counter({"solve": math.prod(sizes[:-2]) * each})


def _elementwise(inputs: list[Any], outputs: list[Any]) -> Counter[str]:
    return Counter({ELEMENTWISE: max(_numel(value) for value in [*inputs, outputs[0]])})


def _floor_divide(inputs: list[Any], outputs: list[Any]) -> Counter[str]:
    """Count a division of tensors; numbers without axes are sizes of heads."""
    return _elementwise(inputs, outputs) if outputs[0].type().sizes() else Counter()


_HANDLES: Final[dict[str, Any]] = (
    {f"aten::{name}": _elementwise for name in _ELEMENTWISE.split()}
    | {f"aten::{name}": None for name in _SHAPE.split()}
    | {"aten::matmul": _product, "aten::mm": _product, "aten::bmm": _product}
    | {"aten::addcmul": lambda inputs, outputs: Counter({"addcmul": _numel(outputs[0])})}
    | {"aten::floor_divide": _floor_divide}
    | {"aten::einsum": _einsum, "aten::linalg_solve_triangular": _solve}
    | dict.fromkeys(("aten::linalg_solve", "aten::linalg_solve_ex"), _solve_square)
    | {"aten::scaled_dot_product_attention": _fused_attention}
)

# fvcore logs operations without a rule; count_calls raises instead.
logging.getLogger("fvcore").setLevel(logging.ERROR)
