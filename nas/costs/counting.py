"""Operation counts of the reference form, by fvcore with a rule for each operation.

fvcore counts a multiply-add as one. By default it ignores broadcast products, einsum, softmax and
activations. The rules of this module count products exactly and elementwise work separately; shape
operations are free, and an operation without a rule is an error. No other module imports fvcore.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections import Counter
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor, nn

from nas.common.errors import GenomeError, NasError
from nas.compiler import Plan
from nas.compiler.interpreter import ReferenceAttention, check_sizes

with warnings.catch_warnings():
    # Importing fvcore compiles TorchScript, which raises a deprecation warning.
    warnings.simplefilter("ignore")
    from fvcore.nn import FlopCountAnalysis

ELEMENTWISE: Final = "elementwise"
TRACED_LENGTHS: Final = (8, 12, 16)
"""Three evenly spaced lengths, which determine a polynomial of degree two."""
_COMPUTED_NUMBERS: Final = 2**18  # largest block that is counted by running it

_POINTWISE: Final = """
    abs add amax amin batch_norm bitwise_not clamp clamp_min cos cumsum div elu eq erf exp ge gelu
    group_norm gt layer_norm le leaky_relu log log_softmax logsumexp lt masked_fill max maximum mean
    minimum mul native_layer_norm ne neg pow reciprocal relu rms_norm rsqrt rsub sigmoid silu sin
    softmax softplus sort sqrt square sub sum tanh threshold topk where __and__
"""
_SHAPE: Final = "unflatten pad repeat_interleave expand_as numel alias lift_fresh tril triu"


def count_operations(
    plan: Plan, dim: int, heads: int, tokens: int, qkv_bias: bool = False
) -> Counter[str]:
    """Multiply-adds of the reference form by operation, at batch 1.

    Args:
        plan: a plan without window, since the reference form computes every pair.

    Returns:
        Multiply-adds by operation; the entry ``ELEMENTWISE`` is the number of elements that
        pointwise operations read or write.

    Raises:
        GenomeError: the mechanism does not exist at this size.
        NasError: there is no cost rule for an operation in it.
    """
    # Running a small block is faster than propagating shapes on the meta device.
    is_small = heads * tokens**2 + 4 * dim**2 <= _COMPUTED_NUMBERS
    device = "cpu" if is_small else "meta"
    module = _build(device, plan, dim, heads, qkv_bias)
    if is_small or not any(isinstance(m, nn.Conv1d) for m in module.modules()):
        return count_calls(module, torch.zeros(1, tokens, dim, device=device))
    # torch cannot trace a convolution without data. Counts are polynomials of degree two in the
    # length, so three short traces give the long one exactly.
    module = _build("cpu", plan, dim, heads, qkv_bias)
    traces = [count_calls(module, torch.zeros(1, n, dim)) for n in TRACED_LENGTHS]
    names = set().union(*traces)
    return Counter({name: _extrapolate([t[name] for t in traces], tokens) for name in names})


def count_parameters(plan: Plan, dim: int, heads: int, qkv_bias: bool = False) -> int:
    """The number of parameters of a block; counts of modules are cached.

    Raises:
        GenomeError: the mechanism does not exist at this size.
    """
    check_sizes(dim, heads)
    total = 0
    for stream in plan.streams:
        if stream.is_projected:
            width = stream.type.head_count(heads) * stream.type.channels(dim, heads)
            total += width * (dim + qkv_bias)
    for step in plan.steps:
        sizes = plan.sizes(step, dim, heads, qkv_bias)
        # Large modules are built on the meta device, whose first use takes seconds.
        device = "cpu" if dim <= 512 else "meta"
        module: Any = step.primitive.module
        total += _learned(module, tuple((sizes | step.params).items()), device)
    wo = dim * (plan.merged_width(dim, heads) + 1) if plan.genome.projections.has_wo else 0
    return total + wo


@lru_cache(maxsize=4096)
def _learned(module: Any, arguments: tuple[tuple[str, Any], ...], device: str) -> int:
    with torch.device(device), torch.random.fork_rng(devices=[]):
        try:
            return sum(p.numel() for p in module(**dict(arguments)).parameters())
        except ValueError as error:
            raise GenomeError(f"{error}.") from None


def _extrapolate(counts: list[int], tokens: int) -> int:
    """The value at ``tokens`` of the polynomial through the counts at ``TRACED_LENGTHS``."""
    step = TRACED_LENGTHS[1] - TRACED_LENGTHS[0]
    first, second = counts[1] - counts[0], counts[2] - 2 * counts[1] + counts[0]
    at = tokens - TRACED_LENGTHS[0]
    return counts[0] + at * first // step + at * (at - step) * second // (2 * step**2)


def _build(device: str, plan: Plan, dim: int, heads: int, qkv_bias: bool = False) -> nn.Module:
    with torch.device(device), torch.random.fork_rng(devices=[]):
        return ReferenceAttention(plan, dim, heads, qkv_bias).eval()


class _Whole(nn.Module):
    """A block that also returns its projections, since a trace drops unused operations.

    A score may leave an operand unread (QANA without its skip), but the block computes it.
    """

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block
        self.seen: list[Tensor] = []
        for name in ("wq", "wk", "wv"):
            if hasattr(block, name):
                block.get_submodule(name).register_forward_hook(self._keep)

    def _keep(self, module: nn.Module, inputs: Any, result: Tensor) -> None:
        self.seen.append(result)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """The block's output, then its projected streams."""
        self.seen.clear()
        return (self.block(x), *self.seen)


def count_calls(module: nn.Module, x: Tensor) -> Counter[str]:
    """The operations of a module for input ``x``.

    Raises:
        GenomeError: the module raises ValueError for ``x``.
        NasError: there is no cost rule for an operation in it.
    """
    analysis = FlopCountAnalysis(_Whole(module), (x,)).set_op_handle(**_HANDLES)
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
    with torch.no_grad(), warnings.catch_warnings():
        # Tracing warns about its deprecation and about branches on shapes.
        warnings.simplefilter("ignore")
        try:
            counts: Counter[str] = analysis.by_operator()
        except ValueError as error:  # raised by a module, for example about the length
            raise GenomeError(f"{error}.") from None
        unknown = analysis.unsupported_ops()
    if unknown:
        raise NasError(
            f"there is no cost rule for operation {', '.join(sorted(unknown))}; expected an entry "
            "in nas/costs/counting.py for each operation of a primitive."
        )
    return counts


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
    pairs = (zip(term, shape, strict=True) for term, shape in zip(terms, operands, strict=True))
    sizes = {index: size for pair in pairs for index, size in pair}
    return Counter({"einsum": math.prod(sizes.values())})


def _fused_attention(inputs: list[Any], outputs: list[Any]) -> Counter[str]:
    """Fused attention: scores and aggregation, n² of each head's two widths."""
    query, key, value = (v.type().sizes() for v in inputs[:3])
    pairs = math.prod(query[:-1]) * key[-2]
    return Counter({"attention": pairs * (query[-1] + value[-1])})


def _addcmul(inputs: list[Any], outputs: list[Any]) -> Counter[str]:
    """addcmul: one multiply-add per element."""
    return Counter({"addcmul": _numel(outputs[0])})


def _elementwise(inputs: list[Any], outputs: list[Any]) -> Counter[str]:
    """The number of elements of the largest operand or result."""
    return Counter({ELEMENTWISE: max(_numel(value) for value in [*inputs, outputs[0]])})


_HANDLES: Final[dict[str, Any]] = (
    {f"aten::{name}": _elementwise for name in _POINTWISE.split()}
    | {f"aten::{name}": None for name in _SHAPE.split()}
    | {"aten::matmul": _product, "aten::mm": _product, "aten::bmm": _product}
    | {"aten::addcmul": _addcmul, "aten::einsum": _einsum}
    | {"aten::scaled_dot_product_attention": _fused_attention}
)

# fvcore logs operations without a rule; count_calls raises instead.
logging.getLogger("fvcore").setLevel(logging.ERROR)
