"""The rules by which fvcore counts the operations of a traced module.

fvcore counts a multiply-add as one operation, and by default ignores broadcast products, einsum,
softmax and activations. The rules of this module count products exactly and elementwise work
separately. Elementwise are the operations that torch tags as pointwise, those listed here, and
those that a primitive declares as ``elementwise``. Shape operations are free, and an operation
without a rule is an error.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import torch
from torch import Tensor, nn

from nas.common.errors import GenomeError, NasError
from nas.common.text import first_line

with warnings.catch_warnings():
    # Importing fvcore compiles TorchScript, which raises a deprecation warning.
    warnings.simplefilter("ignore")
    from fvcore.nn import FlopCountAnalysis

ELEMENTWISE: Final = "elementwise"

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


def count_calls(
    module: nn.Module, inputs: tuple[Tensor, ...], declared: Iterable[str] = ()
) -> Counter[str]:
    """Count the operations that a module executes for its inputs.

    The elements of ``declared`` operations are counted, unless these have another rule. GenomeError
    is raised if the module raises ValueError for the inputs, NasError if it has an operation
    without a counting rule.
    """
    owner = type(getattr(module, "module", module)).__name__
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
        except Exception as error:
            reason = f"{type(error).__name__}: {first_line(error)}"
            raise GenomeError(f"{owner} cannot run at this size ({reason}).") from error
    if unknown := analysis.unsupported_ops():
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
