"""Operation counts of mechanisms: each distinct call is traced once, and counts are summed.

Multiply-adds are those of the calls of a compiled block: a kernel call (nas.compiler.lowering) is
counted as its function runs on a CPU in 32 bits, so that linear attention counts the order in which
it multiplies. Pairs that a causal mask or a window hides are computed and counted; zeros with which
fused attention pads narrow operands are not counted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas.common.errors import GenomeError
from nas.compiler import Plan
from nas.compiler.kernels import traceable_class
from nas.compiler.lowering import Lowered, distributed, live, lower
from nas.compiler.plan import Step
from nas.costs import CostContext
from nas.costs.operations import ELEMENTWISE, count_calls
from nas.genome import ModelSizes, head_count
from nas.genome.primitives import Kind
from nas.genome.types import Type

OperandSize = tuple[int, int | None]  # heads and width of tokens; without width, pairs of tokens
Arguments = tuple[tuple[str, Any], ...]

TRACED_LENGTHS: Final = range(8, 12)  # they determine a cubic polynomial
_COMPUTED_NUMBERS: Final = 2**18  # largest call that is traced on the CPU


def macs(plan: Plan, context: CostContext) -> int:
    """Return the multiply-adds that a compiled block executes, at batch size 1."""
    plan = distributed(plan)
    read = live(plan, lower(plan))
    by_token = [s for s in plan.steps if s.index in read and not s.is_paired]
    tokens = sum(total_macs(profile(plan, step, context.sizes)) for step in by_token)
    return attention_macs(plan, context) + tokens + _projections(plan, context.sizes, read)


def attention_macs(plan: Plan, context: CostContext) -> int:
    """Return those of the ``macs`` that belong to pairs of query and key."""
    plan = distributed(plan)
    lowered = lower(plan)
    read = live(plan, lowered)
    calls = [lowered.get(s.index, s) for s in plan.steps if s.index in read and s.is_paired]
    return sum(
        total_macs(profile(plan, call, context.sizes, is_causal=context.is_causal))
        for call in calls
    )


def elementwise(plan: Plan, context: CostContext) -> int:
    """Count the elements of pointwise operations, reductions and norms.

    An operation counts as many elements as its largest operand or result has. Steps that a kernel
    call replaces are counted, too.
    """
    sizes = context.sizes
    merged = sizes.tokens * plan.output.token_width(sizes.dim, sizes.heads)
    added = merged if plan.genome.projections.merge == "sum" else 0
    return added + sum(
        profile(plan, step, sizes, context.qkv_bias, as_written=True)[ELEMENTWISE]
        for step in plan.steps
    )


def seed_compatible_macs(plan: Plan, context: CostContext) -> int:
    """Return the MACs that fvcore without this module's rules counts for an encoder layer.

    The layer's attention is the mechanism. It has biases, layer norms that count 5 per element, and
    a feed-forward width of 4 ``dim``. The number leaves out operations that fvcore does not count,
    such as convolutions with padding 'same' and sparsemax.
    """
    sizes = context.sizes
    dim, _, _, tokens = sizes
    total, norms = _projections(plan, sizes, {s.name for s in plan.streams}), 2 * tokens * dim
    for step in plan.steps:
        counts = profile(plan, step, sizes, context.qkv_bias, as_written=True)
        size = plan.call_sizes(step, sizes)
        if step.primitive.name == "convolutional_score":
            total += size.heads * tokens**2 * size.width
        else:
            total += total_macs(counts)
        if step.primitive.name == "layer_norm":
            norms += size.heads * tokens * size.width
    return total + 5 * norms + 8 * tokens * dim**2


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
    as_written: bool = False,
) -> Counter[str]:
    """Count the multiply-adds of one call at batch size 1, by operation.

    The entry ``ELEMENTWISE`` is the number of elements that pointwise operations read or write. A
    step that runs ``as_written`` does not run by the faster class of its primitive.

    Raises:
        GenomeError: the call is impossible at this size.
        NasError: the call has an operation without a counting rule.
    """
    dim, heads, _, tokens = sizes
    # Running a small call is faster than propagating shapes.
    numbers = tokens * max(heads * tokens, dim)
    device = "cpu" if numbers <= _COMPUTED_NUMBERS else "meta"
    if isinstance(call, Lowered):
        named, read = _kernel(plan, call, sizes, is_causal)
        size = plan.call_sizes(call.sum, sizes)
        biases = sum(size.heads * tokens * plan.call_sizes(s, sizes).width for s in call.biases)
        return _counts(_Kernel, named, read, None, tokens, device, ()) + Counter(key_bias=biases)
    primitive = call.primitive
    module: Any = primitive.module if as_written else traceable_class(primitive.module)
    arguments = plan.sizes(call, dim, heads, qkv_bias) | call.params
    count = call.type.head_count(heads)
    operands = tuple(_operand(o.type, count, sizes) for o in call.operands)
    x = dim if "x" in primitive.extras else None
    return _counts(
        module, tuple(arguments.items()), operands, x, tokens, device, primitive.elementwise
    )


def _operand(type_: Type, heads: int, sizes: ModelSizes) -> OperandSize:
    if type_.kind.is_paired:
        return heads, None
    return heads, 1 if type_.kind is Kind.GATES else type_.channels(sizes.dim, sizes.heads)


def _kernel(
    plan: Plan, call: Lowered, sizes: ModelSizes, is_causal: bool
) -> tuple[Arguments, tuple[OperandSize, ...]]:
    causal = is_causal and not plan.is_windowed  # the mask of a window is causal itself
    function, has_more_keys = call.function, False
    options: dict[str, Any] = {"is_causal": causal}
    operands = [
        _operand(operand.type, head_count(label, sizes.heads), sizes)
        for operand, label in call.operands
    ]
    if call.is_linear:
        options["divide"] = call.is_divided
        options |= {"scale": 1.0, "is_square": call.is_square} if call.is_quadratic else {}
        if call.is_ratio:  # the sum of the weights is a further feature of the values
            operands[2] = _wider(operands[2])
    elif call.score is not None:
        function, operands = F.scaled_dot_product_attention, operands[:3]
        has_more_keys = call.has_sink and not call.is_plain_sink(plan)
        if has_more_keys or call.has_bias(causal):  # a feature of the keys
            operands[:2] = map(_wider, operands[:2])
        if call.mix is not None:  # the values of two heads
            operands[2] = operands[2][0], 2 * (operands[2][1] or 0)
    masked = sizes.tokens if plan.is_windowed else 0
    arguments = {"function": function, "masked": masked, "options": tuple(options.items())}
    return tuple((arguments | {"has_sink": has_more_keys}).items()), tuple(operands)


def _wider(operand: OperandSize) -> OperandSize:
    heads, width = operand
    assert width is not None, "kernels read tokens"
    return heads, width + 1


class _Kernel(nn.Module):
    """A call of a kernel's function, with a mask of ``masked`` tokens unless that is 0.

    The fourth operand is forget gates. A sink is a further key, in causal attention also a query.
    """

    def __init__(
        self, function: Callable[..., Tensor], masked: int, options: Arguments, has_sink: bool
    ) -> None:
        super().__init__()
        self.function, self.options, self.has_sink = function, dict(options), has_sink
        keys = masked + has_sink
        self.mask = torch.ones(masked, keys, dtype=torch.bool) if masked else None

    def forward(self, query: Tensor, *others: Tensor) -> Tensor:
        """Return the function's result."""
        if self.has_sink:
            others = tuple(F.pad(x, (0, 0, 1, 0)) for x in others)
            query = F.pad(query, (0, 0, 1, 0)) if self.options["is_causal"] else query
        named = {"gates": others[2]} if len(others) > 2 else {}
        return self.function(query, *others[:2], self.mask, **named, **self.options)


@lru_cache(maxsize=4096)
def _counts(
    module: Any,
    arguments: Arguments,
    operands: tuple[OperandSize, ...],
    x: int | None,
    tokens: int,
    device: str,
    declared: tuple[str, ...],
) -> Counter[str]:
    def traced(part: nn.Module, tokens: int, device: str) -> Counter[str]:
        shapes: list[tuple[int, ...]] = [
            (1, heads, tokens, tokens if width is None else width) for heads, width in operands
        ]
        if x is not None:
            part = WithInput(part)
            shapes.append((1, tokens, x))
        inputs = tuple(torch.zeros(shape, device=device) for shape in shapes)
        return count_calls(part, inputs, declared)

    part = _built(module, arguments, device)
    if device == "cpu" or not any(isinstance(m, nn.Conv1d | nn.Conv2d) for m in part.modules()):
        return traced(part, tokens, device)
    # torch cannot trace a convolution without data. Counts are polynomials of degree three at most
    # in the length, so four short traces give the long one exactly.
    part = _built(module, arguments, "cpu")
    traces = [traced(part, length, "cpu") for length in TRACED_LENGTHS]
    distance = tokens - TRACED_LENGTHS[0]
    names = set().union(*traces)
    return Counter({name: _extrapolate([t[name] for t in traces], distance) for name in names})


def _built(module: Any, arguments: Arguments, device: str) -> nn.Module:
    with torch.device(device), torch.random.fork_rng(devices=[]):
        try:
            return cast("nn.Module", module(**dict(arguments)).eval())
        except ValueError as error:
            raise GenomeError(f"{error}.") from None


class WithInput(nn.Module):
    """A module called with its operands and, as the last, the block's input."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *operands: Tensor) -> Tensor:
        """Return the module's result."""
        return cast("Tensor", self.module(*operands[:-1], x=operands[-1]))


def _projections(plan: Plan, sizes: ModelSizes, read: Iterable[Any]) -> int:
    linears = plan.linears(sizes.dim, sizes.heads)
    return sizes.tokens * sum(math.prod(linears[name]) for name in linears.keys() & {*read, "o"})


def _extrapolate(counts: list[int], distance: int) -> int:
    """Return the member of a sequence that is so far from the first, by Newton's differences."""
    total = 0
    for order in range(len(counts)):
        total += math.comb(distance, order) * counts[0]
        counts = [after - before for before, after in pairwise(counts)]
    return total


def params(plan: Plan, context: CostContext) -> int:
    """Return the number of parameters of a block."""
    dim, heads, qkv_bias = context.sizes.dim, context.sizes.heads, context.qkv_bias
    total = sum(
        (width + (qkv_bias or name == "o")) * out
        for name, (width, out) in plan.linears(dim, heads).items()
    )
    # Large modules are built on the meta device, whose first use takes seconds.
    device = "cpu" if dim <= 512 else "meta"
    for step in plan.steps:
        module: Any = step.primitive.module
        arguments = plan.sizes(step, dim, heads, qkv_bias) | step.params
        total += _module_parameters(module, tuple(arguments.items()), device)
    return total


@lru_cache(maxsize=4096)
def _module_parameters(module: Any, arguments: Arguments, device: str) -> int:
    return sum(p.numel() for p in _built(module, arguments, device).parameters())
