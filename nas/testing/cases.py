"""Test cases of primitives, with modules of random weights, random inputs, and masks.

A case is a primitive with a value for each of its parameters. The cases of a primitive cover every
value of a choice or flag, and the default, the lowest and the second lowest value of an integer.
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from nas.genome.primitives import Sizes
from nas.genome.primitives.base import Kind, Port, Primitive, Signature
from nas.genome.primitives.domains import Choice, Domain, Flag, Integer
from nas.genome.primitives.tensors import drop_padding, hide
from nas.testing.promises import gradients, noisy

BATCH: Final = 4
SIZES: Final = Sizes(dim=24, heads=4, width=6, tokens=9)


@dataclass(frozen=True)
class Case:
    """A primitive with a value of each parameter and with one of its signatures."""

    primitive: Primitive
    params: dict[str, Any]
    signature: Signature

    def __str__(self) -> str:
        defaults = self.primitive.defaults()
        changed = [f"{k}={v}" for k, v in self.params.items() if v != defaults[k]]
        has_several = len(self.primitive.signatures) > 1
        kinds = [str(port.kind) for port in self.signature.inputs] if has_several else []
        return "-".join([self.primitive.name, *changed, *kinds])


def cases(primitive: Primitive) -> list[Case]:
    """Return the cases of a primitive, beginning with the default parameters."""
    domains = primitive.parameters
    chosen: list[dict[str, Any]] = []
    covered: set[tuple[str, Any]] = set()
    for values in itertools.product(*map(_values, domains.values())):
        params = dict(zip(domains, values, strict=True))
        with suppress(ValueError):  # some values exclude each other
            primitive.check(params)
            if not chosen or not covered.issuperset(params.items()):
                chosen.append(params)
                covered.update(params.items())
    return [Case(primitive, params, s) for params in chosen for s in primitive.signatures]


def _values(domain: Domain) -> tuple[Any, ...]:
    if isinstance(domain, Choice):
        return tuple(sorted(domain.values, key=lambda value: value != domain.default))
    if isinstance(domain, Flag):
        return (domain.default, not domain.default)
    if isinstance(domain, Integer):
        return (domain.default, domain.low, min(domain.low + 1, domain.high))
    return (domain.default,)


def build(case: Case, sizes: Sizes = SIZES, *, randomised: bool = True) -> nn.Module:
    """Return the module of a case in float64; if ``randomised``, ``noisy`` and with no schedule."""
    available = asdict(sizes) | {"bias": True, "filtered": True}
    available |= dict.fromkeys(("head_width", "rank"), sizes.width)
    torch.manual_seed(3)
    arguments = {name: available[name] for name in case.primitive.sizes}
    module = case.primitive.module(**arguments, **case.params).double()
    if randomised:
        for schedule in noisy(module).buffers():
            schedule.fill_(1e9)  # a schedule at its end no longer changes
    return module


def draw(
    signature: Signature, sizes: Sizes = SIZES, mask: Tensor | None = None, x: Tensor | None = None
) -> list[Tensor]:
    """Return operands computed from the input ``x`` of an attention block, and last ``x`` itself.

    Tokens depend on one token of ``x``, scores on two, weights on the visible tokens, and gates on
    the tokens so far; gates of padding are 1.

    Args:
        mask: True where attention is allowed, broadcastable to (batch, heads, tokens, tokens).
        x: shape (batch, tokens, dim); random by default.
    """
    if x is None:
        start = torch.Generator().manual_seed(10)
        x = torch.randn(BATCH, sizes.tokens, sizes.dim, generator=start, dtype=torch.float64)
    generator = torch.Generator().manual_seed(11)

    def projected(width: int) -> Tensor:
        weight = torch.randn(sizes.heads, sizes.dim, width, generator=generator, dtype=x.dtype)
        return x[:, None] @ (weight * sizes.dim**-0.5)

    operands = []
    for port in signature.inputs:
        if port.kind.is_paired:
            operand = projected(sizes.width) @ projected(sizes.width).mT * sizes.width**-0.5
        else:
            operand = projected(features(port.kind, sizes))
        if port.kind is Kind.WEIGHTS:
            operand = torch.softmax(hide(operand, mask), dim=-1).nan_to_num()
        if port.kind.is_gates:
            operand = -drop_padding(operand, mask).abs().cumsum(dim=2)
        operands.append(operand)
    return [*operands, x]


def features(kind: Kind, sizes: Sizes = SIZES) -> int:
    """Return the size of the last axis of a tensor."""
    return sizes.tokens if kind.is_paired else 1 if kind is Kind.GATES else sizes.width


def call(
    module: nn.Module,
    case: Case,
    inputs: list[Tensor],
    mask: Tensor | None = None,
    part: slice = slice(None),
    **options: Any,
) -> Tensor:
    """Return the output of a case's module, for a part of the tokens, or of the queries.

    ``options`` are further arguments of ``forward``.
    """
    unread = case.primitive.unread(case.params)

    def is_cut(port: Port) -> bool:
        is_read_by_query = port.kind.is_paired and port.name not in unread
        return port.is_query or is_read_by_query or not case.signature.is_paired

    operands = [
        inputs[slot][:, :, part if is_cut(port) else slice(None)]
        for slot, port in case.signature.arguments()
    ]
    result: Tensor = module(*operands, **extras(case, inputs, mask, part), **options)
    return result


def extras(
    case: Case, inputs: list[Tensor], mask: Tensor | None, part: slice = slice(None)
) -> dict[str, Any]:
    """Return the arguments, by name, that ``forward`` takes after the operands."""
    rows = mask if mask is None else mask[..., part, :]
    available = {"x": inputs[-1][:, part], "mask": rows}
    return {name: available[name] for name in case.primitive.extras}


def backward(
    module: nn.Module,
    case: Case,
    inputs: list[Tensor],
    mask: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return output, and gradients of inputs and parameters by name, with autocast to ``dtype``."""
    leaves = [t.detach().clone().requires_grad_() for t in inputs]
    names = [*(port.name for port in case.signature.inputs), "x"]
    tensors = dict(zip(names, leaves, strict=True)) | dict(module.named_parameters())
    with torch.autocast("cpu", dtype, enabled=dtype is not None):
        result = call(module, case, leaves, mask)
    return result.detach(), dict(zip(tensors, gradients(result, tensors.values()), strict=True))


def causal(n: int = SIZES.tokens) -> Tensor:
    """Return a causal mask (n, n)."""
    return torch.ones(n, n, dtype=torch.bool).tril()


def padding(n: int = SIZES.tokens, batch: int = BATCH) -> Tensor:
    """Return a key padding mask (batch, 1, 1, n) that hides the last two keys."""
    return (torch.arange(n) < n - 2).expand(batch, 1, 1, n)
