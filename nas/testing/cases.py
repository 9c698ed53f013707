"""Test cases of primitives: parameters, modules with random weights, random operands.

A case is a primitive with parameters. Each value of a choice or flag has a case; integers have
their lowest value and the next. Combinations that the primitive excludes are replaced by the
nearest allowed combination.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from nas.genome.primitives import Sizes
from nas.genome.primitives.base import Kind, Primitive, Signature
from nas.genome.primitives.domains import Choice, Domain, Flag, Integer

BATCH: Final = 2
SMALL: Final = Sizes(dim=8, heads=2, width=4, tokens=5)
LARGE: Final = Sizes(dim=24, heads=4, width=6, tokens=9)


@dataclass(frozen=True)
class Case:
    """A primitive with all of its parameters, under one of its signatures."""

    primitive: Primitive
    params: dict[str, Any]
    signature: Signature

    def __str__(self) -> str:
        defaults = self.primitive.defaults()
        changed = [f"{k}={v}" for k, v in self.params.items() if v != defaults[k]]
        has_several = len(self.primitive.signatures) > 1
        kinds = [str(self.signature.inputs[0].kind)] if has_several else []
        return "-".join([self.primitive.name, *changed, *kinds])


def cases(primitive: Primitive) -> list[Case]:
    """The defaults, and for each value of each parameter the nearest allowed combination."""
    combinations = [primitive.defaults()]
    domains = {name: _values(name, domain) for name, domain in primitive.parameters.items()}
    for name, value in ((name, v) for name, values in domains.items() for v in values):
        others = [other for other in reversed(domains) if other != name]
        for rest in itertools.product(*(domains[other] for other in others)):
            params = {name: value} | dict(zip(others, rest, strict=True))
            params = {key: params[key] for key in domains}
            if _is_allowed(primitive, params):
                if params not in combinations:
                    combinations.append(params)
                break
    return [Case(primitive, params, s) for params in combinations for s in primitive.signatures]


def _values(name: str, domain: Domain) -> tuple[Any, ...]:
    """The values of a parameter that have a case, the default first."""
    if name == "tokens":  # a module built for a length must support the sequences of the cases
        return (domain.default, LARGE.tokens, LARGE.tokens + 1)
    if isinstance(domain, Choice):
        return tuple(sorted(domain.values, key=lambda value: value != domain.default))
    if isinstance(domain, Flag):
        return (domain.default, not domain.default)
    if isinstance(domain, Integer):
        return (domain.default, domain.low, min(domain.low + 1, domain.high))
    return (domain.default,)


def _is_allowed(primitive: Primitive, params: Mapping[str, Any]) -> bool:
    try:
        primitive.check(params)
    except ValueError:
        return False
    return True


def build(case: Case, sizes: Sizes, *, randomised: bool = True) -> nn.Module:
    """The module in float64; randomised, since errors in factors of zero weights would not show."""
    available = {
        "dim": sizes.dim,
        "heads": sizes.heads,
        "width": sizes.width,
        "bias": True,
        "head_width": sizes.width,
        "rank": sizes.width,
        "filtered": True,
    }
    torch.manual_seed(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about initialisations that never train
        arguments = {name: available[name] for name in case.primitive.sizes}
        module = case.primitive.module(**arguments, **case.params).double()
    if randomised:
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.3)
            for schedule in module.buffers():
                schedule.fill_(1e9)  # a schedule at its end no longer changes
    return module


@dataclass
class Inputs:
    """Inputs of one call: operands in order, the block's input, and the mask."""

    operands: list[Tensor]
    x: Tensor
    mask: Tensor | None

    def tensors(self) -> list[Tensor]:
        """Operands and input."""
        return [*self.operands, self.x]


def draw(signature: Signature, sizes: Sizes, mask: Tensor | None = None) -> Inputs:
    """Random inputs; weights are zero where the mask hides."""
    generator = torch.Generator().manual_seed(11)
    n = sizes.tokens

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    operands = []
    for port in signature.inputs:
        tensor = normal(BATCH, sizes.heads, n, sizes.width if port.kind is Kind.TOKENS else n)
        if port.kind is Kind.WEIGHTS:
            tensor = torch.softmax(tensor, -1)
            tensor = tensor if mask is None else tensor * mask
        operands.append(tensor)
    return Inputs(operands, normal(BATCH, n, sizes.dim), mask)


def changed_at(inputs: Inputs, signature: Signature, tokens: Tensor) -> Inputs:
    """The inputs with other values at marked tokens (n).

    Scores change if query or key is marked, weights (which are already masked) if the query is.
    """

    def change(tensor: Tensor, kind: Kind) -> Tensor:
        where = tokens[:, None] | tokens[None, :] if kind is Kind.SCORES else tokens[:, None]
        return torch.where(where, tensor + torch.randn_like(tensor), tensor)

    pairs = zip(inputs.operands, signature.inputs, strict=True)
    operands = [change(tensor, port.kind) for tensor, port in pairs]
    return Inputs(operands, change(inputs.x, Kind.TOKENS), inputs.mask)


def call(module: nn.Module, case: Case, inputs: Inputs) -> Tensor:
    """The result of a call."""
    result: Tensor = module(*inputs.operands, **extras(case, inputs))
    return result


def extras(case: Case, inputs: Inputs) -> dict[str, Any]:
    """The additional arguments of ``forward``, by name."""
    available = {"x": inputs.x, "mask": inputs.mask}
    return {name: available[name] for name in case.primitive.extras}


def causal(n: int) -> Tensor:
    """A causal mask (n, n)."""
    return torch.ones(n, n, dtype=torch.bool).tril()


def padding(n: int, count: int = 2) -> Tensor:
    """A key padding mask (batch, 1, 1, n) that hides the last ``count`` keys."""
    return (torch.arange(n) < n - count).expand(BATCH, 1, 1, n)


def without_row(n: int, row: int = 1) -> Tensor:
    """A mask (n, n) that hides all keys from one row."""
    mask = torch.ones(n, n, dtype=torch.bool)
    mask[row] = False
    return mask
