"""What primitives are checked with: parameters, modules away from their start, random operands.

A case is a primitive with parameters. Each value of a choice or flag has a case, and numbers have
their lowest value and one more; combinations that the primitive excludes are completed to the
nearest allowed one.
"""

from __future__ import annotations

import itertools
import warnings
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
# A length that a module is built for must hold the sequences.
_ROOMY: Final = {"tokens": (LARGE.tokens, LARGE.tokens + 1)}


@dataclass(frozen=True)
class Case:
    """A primitive with all of its parameters, under one of its signatures."""

    primitive: Primitive
    params: dict[str, Any]
    signature: Signature

    def __str__(self) -> str:
        defaults = self.primitive.defaults()
        changed = [f"{k}={v}" for k, v in self.params.items() if v != defaults[k]]
        several = len(self.primitive.signatures) > 1
        reading = [str(self.signature.inputs[0].kind)] if several else []
        return "-".join([self.primitive.name, *changed, *reading])


def cases(primitive: Primitive) -> list[Case]:
    """The defaults, and for each value of each parameter the nearest allowed combination."""
    found = [primitive.defaults()]
    domains = {k: _values(k, domain) for k, domain in primitive.parameters.items()}
    for name, value in ((k, v) for k, several in domains.items() for v in several):
        rest = [k for k in domains if k != name]
        for combination in itertools.product(*(domains[k] for k in reversed(rest))):
            params = {name: value} | dict(zip(reversed(rest), combination, strict=True))
            ordered = {k: params[k] for k in domains}
            if _is_allowed(primitive, ordered):
                if ordered not in found:
                    found.append(ordered)
                break
    return [Case(primitive, params, s) for params in found for s in primitive.signatures]


def _values(name: str, domain: Domain) -> tuple[Any, ...]:
    """The values of a parameter that have a case of their own, the default first."""
    if name in _ROOMY:
        return (domain.default, *_ROOMY[name])
    if isinstance(domain, Choice):
        return tuple(sorted(domain.values, key=lambda value: value != domain.default))
    if isinstance(domain, Flag):
        return (domain.default, not domain.default)
    if isinstance(domain, Integer):
        return (domain.default, domain.low, min(domain.low + 1, domain.high))
    return (domain.default,)


def _is_allowed(primitive: Primitive, params: dict[str, Any]) -> bool:
    try:
        primitive.check(params)
    except ValueError:
        return False
    return True


def build(case: Case, sizes: Sizes, *, randomised: bool = True) -> nn.Module:
    """The module in float64; randomised, so that no zero at the start hides a mistake."""
    known = {
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
        warnings.simplefilter("ignore")  # some starts warn that they never train
        wanted = {name: known[name] for name in case.primitive.sizes}
        module = case.primitive.module(**wanted, **case.params).double()
    if randomised:
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.3)
            for schedule in module.buffers():
                schedule.fill_(1e9)  # at its end a pass changes nothing
    return module


@dataclass
class Inputs:
    """What one call is given: operands in order, the block's input, and the mask."""

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
        last = sizes.width if port.kind is Kind.TOKENS else n
        tensor = normal(BATCH, sizes.heads, n, last)
        if port.kind is Kind.WEIGHTS:
            tensor = torch.softmax(tensor, -1)
            tensor = tensor if mask is None else tensor * mask
        operands.append(tensor)
    return Inputs(operands, normal(BATCH, n, sizes.dim), mask)


def moved(inputs: Inputs, signature: Signature, which: Tensor) -> Inputs:
    """The same inputs with other content at the tokens that ``which`` (n) marks.

    Scores change where query or key is marked; weights, which normalisers have masked, where
    the query is.
    """

    def move(tensor: Tensor, kind: Kind) -> Tensor:
        touched = which[:, None] | which[None, :] if kind is Kind.SCORES else which[:, None]
        return torch.where(touched, tensor + torch.randn_like(tensor), tensor)

    kinds = [port.kind for port in signature.inputs]
    operands = [move(t, kind) for t, kind in zip(inputs.operands, kinds, strict=True)]
    return Inputs(operands, move(inputs.x, Kind.TOKENS), inputs.mask)


def call(module: nn.Module, case: Case, inputs: Inputs) -> Tensor:
    """The result of a call."""
    result: Tensor = module(*inputs.operands, **extras(case, inputs))
    return result


def extras(case: Case, inputs: Inputs) -> dict[str, Tensor | None]:
    """What ``forward`` asks for beside operands, by name."""
    given = {"x": inputs.x, "mask": inputs.mask}
    return {name: given[name] for name in case.primitive.extras}


def causal(n: int) -> Tensor:
    """A mask under which each token sees itself and earlier ones."""
    return torch.ones(n, n, dtype=torch.bool).tril()


def padding(n: int, count: int = 2) -> Tensor:
    """The last ``count`` keys are padding, in the shape of a key padding mask."""
    return (torch.arange(n) < n - count).expand(BATCH, 1, 1, n)


def without_row(n: int, row: int = 1) -> Tensor:
    """A mask under which one row sees no key."""
    mask = torch.ones(n, n, dtype=torch.bool)
    mask[row] = False
    return mask
