"""Operation counts of the reference form, by fvcore with a rule for each operation.

The reference form is the interpreter ``ReferenceAttention``, which computes all pairs of query and
key. fvcore counts a multiply-add as one operation, and by default ignores broadcast products,
einsum, softmax and activations. The rules of this module count products exactly and elementwise
work separately. Elementwise are the operations that torch tags as pointwise, those listed here, and
those that a primitive declares as ``elementwise``. Shape operations are free, and an operation
without a rule is an error. The counted multiply-adds must equal the formulas that the primitives
declare as ``macs``. No other module imports fvcore.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

import torch
from torch import Tensor, nn

from nas.common.errors import GenomeError, NasError
from nas.compiler import Plan
from nas.compiler.interpreter import ReferenceAttention, check_sizes
from nas.compiler.plan import plan_as_written
from nas.costs.macs import closed_form_macs, token_width
from nas.genome import Genome, ModelSizes, Visibility

with warnings.catch_warnings():
    # Importing fvcore compiles TorchScript, which raises a deprecation warning.
    warnings.simplefilter("ignore")
    from fvcore.nn import FlopCountAnalysis

ELEMENTWISE: Final = "elementwise"
TRACED_LENGTHS: Final = (8, 12, 16, 20)  # evenly spaced; they determine a cubic polynomial
_STEP: Final = TRACED_LENGTHS[1] - TRACED_LENGTHS[0]
_COMPUTED_NUMBERS: Final = 2**18  # largest block that is counted by running it

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
    triu ones_like eye
"""


def elementwise(plan: Plan, sizes: ModelSizes, qkv_bias: bool = False) -> int:
    """Count the elements that pointwise operations, reductions and norms of a block read or write.

    An operation counts as many elements as its largest operand or result has.

    Raises:
        GenomeError: the mechanism does not exist at this size.
        NasError: the mechanism has an operation without a counting rule.
    """
    return _checked_counts(plan.genome, sizes, sizes.tokens, qkv_bias)[ELEMENTWISE]


def seed_compatible_macs(plan: Plan, sizes: ModelSizes, qkv_bias: bool = False) -> int:
    """Return the MACs that fvcore without this module's rules counts for an encoder layer.

    The layer's attention is the mechanism. It has biases, layer norms that count 5 per element, and
    a feed-forward width of 4 ``dim``. The number leaves out operations that fvcore does not count,
    such as convolutions with padding 'same' and sparsemax.
    """
    dim, heads, _, tokens = sizes
    macs = _macs(_checked_counts(plan.genome, sizes, tokens, qkv_bias))
    norms = 2 * tokens * dim
    for step in plan.steps:
        size = plan.call_sizes(step, dim, heads, tokens)
        if step.primitive.name == "convolutional_score":
            macs -= step.primitive.macs(size, step.params) - size.heads * tokens**2 * size.width
        if step.primitive.name == "layer_norm":
            norms += size.heads * tokens * size.width
    return macs + 5 * norms + 8 * tokens * dim**2


@lru_cache(maxsize=256)
def _checked_counts(genome: Genome, sizes: ModelSizes, tokens: int, qkv_bias: bool) -> Counter[str]:
    """Count the operations of a block at a sequence length.

    Raises:
        NasError: the counted multiply-adds differ from the formulas that the primitives declare.
    """
    dense = dense_plan(plan_as_written(genome))
    counts = count_operations(dense, sizes.dim, sizes.heads, tokens, qkv_bias)
    expected = closed_form_macs(dense, sizes._replace(tokens=tokens))
    if _macs(counts) != expected:
        raise NasError(
            f"the MACs counted, {_macs(counts)}, differ from the closed formulas of "
            f"{', '.join(sorted({s.primitive.name for s in dense.steps}))}: {expected}; "
            "expected a primitive's macs to state what its module computes."
        )
    return counts


def _macs(counts: Counter[str]) -> int:
    return sum(count for name, count in counts.items() if name != ELEMENTWISE)


def dense_plan(plan: Plan) -> Plan:
    """Return the plan without its window, so that every pair of query and key is computed."""
    return replace(plan, genome=replace(plan.genome, visibility=Visibility()))


def count_operations(
    plan: Plan, dim: int, heads: int, tokens: int, qkv_bias: bool = False
) -> Counter[str]:
    """Count the operations of the reference form at batch size 1.

    Args:
        plan: a plan without a window.

    Returns:
        Multiply-adds by operation; the entry ``ELEMENTWISE`` is the number of elements that
        pointwise operations read or write.

    Raises:
        GenomeError: the mechanism does not exist at this size.
        NasError: the mechanism has an operation without a counting rule.
    """

    def built(device: str) -> nn.Module:
        with torch.device(device), torch.random.fork_rng(devices=[]):
            return ReferenceAttention(plan, dim, heads, qkv_bias).eval()

    # Running a small block is faster than propagating shapes on the meta device.
    is_small = heads * tokens**2 + 4 * dim**2 <= _COMPUTED_NUMBERS
    device = "cpu" if is_small else "meta"
    declared = {name for step in plan.steps for name in step.primitive.elementwise}
    module = built(device)
    if is_small or not any(isinstance(m, nn.Conv1d | nn.Conv2d) for m in module.modules()):
        return count_calls(module, torch.zeros(1, tokens, dim, device=device), declared)
    # torch cannot trace a convolution without data. Counts are polynomials of degree three at most
    # in the length, so four short traces give the long one exactly. Only the elements of scan,
    # which grow with the logarithm of the length, are approximate.
    module = built("cpu")
    traces = [count_calls(module, torch.zeros(1, n, dim), declared) for n in TRACED_LENGTHS]
    names = set().union(*traces)
    return Counter({name: _extrapolate([t[name] for t in traces], tokens) for name in names})


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


class _WithResults(nn.Module):
    """A block that returns its output and the results of its projections and primitives.

    A trace drops operations whose result is not returned. A block computes all of them, even if
    only the shape of a result is read (by a forget gate), so all of them must be counted.
    """

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block
        self.results: list[Tensor] = []
        for child in block.children():
            child.register_forward_hook(self._keep)

    def _keep(self, module: nn.Module, inputs: Any, result: Any) -> None:
        if isinstance(result, Tensor):
            self.results.append(result)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        self.results.clear()
        return (self.block(x), *self.results)


def count_calls(module: nn.Module, x: Tensor, declared: Iterable[str] = ()) -> Counter[str]:
    """Count the operations that a module executes for input ``x``.

    Args:
        module: the module.
        x: its input.
        declared: names of operations without another rule that count their elements.

    Raises:
        GenomeError: the module raises ValueError for ``x``.
        NasError: the module has an operation without a counting rule.
    """
    counted = _WithResults(module)
    analysis = FlopCountAnalysis(counted, (x,))
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
        # The modules of primitives are children of the block.
        parts = {n: m for n, m in counted.named_modules() if n.count(".") == 1}
        owners = {type(m).__name__ for n, m in parts.items() if analysis.unsupported_ops(n)}
        names = ", ".join(sorted(unknown))
        raise NasError(
            f"there is no cost rule for operation {names} of {', '.join(sorted(owners))}; expected "
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
    if "." in equation or len(terms) != 2:
        raise NasError(
            f"einsum {equation!r} cannot be counted; expected two operands and no ellipsis."
        )
    pairs = (zip(term, shape, strict=True) for term, shape in zip(terms, operands, strict=True))
    sizes = {index: size for pair in pairs for index, size in pair}
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
