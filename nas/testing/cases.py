"""Test cases of primitives, with modules of random weights, random inputs, and masks.

A case is a primitive with a value for each of its parameters. The cases of a primitive cover every
value of a choice or flag, and the default, the lowest and the second lowest value of an integer. If
the primitive excludes a combination of values, the nearest allowed combination replaces it.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from nas.genome.primitives import Sizes
from nas.genome.primitives.base import Kind, Port, Primitive, Signature
from nas.genome.primitives.domains import Choice, Domain, Flag, Integer

BATCH: Final = 2
SMALL: Final = Sizes(dim=8, heads=2, width=4, tokens=5)
LARGE: Final = Sizes(dim=24, heads=4, width=6, tokens=9)


@dataclass(frozen=True)
class Case:
    """A primitive with a value of each parameter and with one of its signatures.

    Attributes:
        primitive: the primitive.
        params: the value of each parameter by name.
        signature: the kinds of operands and of the result.
    """

    primitive: Primitive
    params: dict[str, Any]
    signature: Signature

    def __str__(self) -> str:
        defaults = self.primitive.defaults()
        changed = [f"{k}={v}" for k, v in self.params.items() if v != defaults[k]]
        has_several = len(self.primitive.signatures) > 1
        kinds = [str(port.kind) for port in self.signature.inputs] if has_several else []
        return "-".join([self.primitive.name, *changed, *kinds])

    def described(self) -> str:
        """Return the primitive's name, all parameters and the signature, for an error message."""
        ports = ", ".join(f"{port.name}: {port.kind}" for port in self.signature.inputs)
        values = [f"{name}={value}" for name, value in self.params.items()]
        call = "; ".join([*values, f"{ports} -> {self.signature.output.kind}"])
        return f"the primitive {self.primitive.name} ({call})"


def cases(primitive: Primitive) -> list[Case]:
    """Return the cases of a primitive, beginning with the default parameters."""
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
    if name == "tokens":  # a module built for a length must accept the sequences of all cases
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
    """Return the module of a case in float64.

    Args:
        case: the case.
        sizes: sizes of the model and the sequence.
        randomised: whether to add noise to the parameters, since zero weights could hide errors.
    """
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
    """Inputs of a call of a primitive.

    Attributes:
        operands: the operands in the order of the signature.
        x: input of the attention block, (batch, tokens, dim).
        mask: boolean mask, True where attention is allowed; None for no mask.
    """

    operands: list[Tensor]
    x: Tensor
    mask: Tensor | None

    def tensors(self) -> list[Tensor]:
        """Return the operands and the input of the block."""
        return [*self.operands, self.x]

    def with_tensors(self, tensors: Iterable[Tensor]) -> Inputs:
        """Return inputs with other tensors, in the order of ``tensors()``, and the same mask."""
        *operands, x = tensors
        return Inputs(operands, x, self.mask)


def draw(signature: Signature, sizes: Sizes, mask: Tensor | None = None) -> Inputs:
    """Return random inputs; attention weights among them are zero where the mask hides a key."""
    generator = torch.Generator().manual_seed(11)
    n = sizes.tokens

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    operands = []
    for port in signature.inputs:
        tensor = normal(BATCH, sizes.heads, n, features(port.kind, sizes))
        if port.kind is Kind.WEIGHTS:
            tensor = torch.softmax(tensor, -1)
            tensor = tensor if mask is None else tensor * mask
        if port.kind.is_gates:
            tensor = -tensor.abs().cumsum(dim=2)
        operands.append(tensor)
    return Inputs(operands, normal(BATCH, n, sizes.dim), mask)


def features(kind: Kind, sizes: Sizes) -> int:
    """Return the size of the last axis of a tensor."""
    return sizes.tokens if kind.is_paired else 1 if kind is Kind.GATES else sizes.width


def changed_at(
    inputs: Inputs, signature: Signature, tokens: Tensor, *, are_padding: bool = False
) -> Inputs:
    """Return the inputs with other values at marked tokens.

    An attention score changes if its query or its key is marked, an attention weight only if its
    query is marked.

    Args:
        inputs: the inputs.
        signature: the signature of the primitive.
        tokens: boolean tensor (tokens), True at marked tokens.
        are_padding: whether marked tokens are padding, whose forget gates are always 1.
    """

    def change(tensor: Tensor, kind: Kind) -> Tensor:
        where = tokens[:, None] | tokens[None, :] if kind is Kind.SCORES else tokens[:, None]
        if kind.is_gates and are_padding:
            return tensor
        if kind.is_gates:  # the gate of a token is a part of all later sums
            changed = torch.where(where, torch.rand_like(tensor), torch.zeros_like(tensor))
            return tensor - changed.cumsum(dim=2)
        return torch.where(where, tensor + torch.randn_like(tensor), tensor)

    pairs = zip(inputs.operands, signature.inputs, strict=True)
    operands = [change(tensor, port.kind) for tensor, port in pairs]
    return Inputs(operands, change(inputs.x, Kind.TOKENS), inputs.mask)


def call(module: nn.Module, case: Case, inputs: Inputs) -> Tensor:
    """Return the output of a case's module for these inputs."""
    result: Tensor = module(*arguments(case, inputs), **extras(case, inputs))
    return result


def arguments(case: Case, inputs: Inputs, part: slice = slice(None)) -> list[Tensor]:
    """Return the operands as ``forward`` takes them, at a part of the tokens, or of the queries."""
    is_paired, unread = case.signature.is_paired, case.primitive.unread(case.params)

    def is_cut(port: Port) -> bool:
        is_by_query = port.is_query or (port.kind.is_paired and port.name not in unread)
        return is_by_query or not is_paired

    pairs = ((inputs.operands[slot], port) for slot, port in case.signature.arguments())
    return [tensor[:, :, part] if is_cut(port) else tensor for tensor, port in pairs]


def extras(case: Case, inputs: Inputs) -> dict[str, Any]:
    """Return the arguments, by name, that ``forward`` takes after the operands."""
    available = {"x": inputs.x, "mask": inputs.mask}
    return {name: available[name] for name in case.primitive.extras}


def causal(n: int) -> Tensor:
    """Return a causal mask (n, n)."""
    return torch.ones(n, n, dtype=torch.bool).tril()


def padding(n: int, count: int = 2) -> Tensor:
    """Return a key padding mask (``BATCH``, 1, 1, n) that hides the last ``count`` keys."""
    return (torch.arange(n) < n - count).expand(BATCH, 1, 1, n)


def without_row(n: int, row: int = 1) -> Tensor:
    """Return a mask (n, n) that hides all keys from the query of index ``row``."""
    mask = torch.ones(n, n, dtype=torch.bool)
    mask[row] = False
    return mask
