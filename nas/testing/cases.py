"""Test cases of primitives, with modules of random weights, random inputs, and masks.

A case is a primitive with a value for each of its parameters. The cases of a primitive cover every
value of a choice or flag, and the default, the lowest and the second lowest value of an integer.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from nas.genome.primitives import Sizes
from nas.genome.primitives.base import Kind, Port, Primitive, Signature
from nas.genome.primitives.domains import Choice, Domain, Flag, Integer
from nas.testing.promises import gradients

BATCH: Final = 2
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
    for values in itertools.product(*(_values(*item) for item in domains.items())):
        params = dict(zip(domains, values, strict=True))
        is_new = not chosen or not covered.issuperset(params.items())
        if is_new and _is_allowed(primitive, params):
            chosen.append(params)
            covered.update(params.items())
    return [Case(primitive, params, s) for params in chosen for s in primitive.signatures]


def _values(name: str, domain: Domain) -> tuple[Any, ...]:
    if name == "tokens":  # a module built for a length must accept the sequences of all cases
        return (domain.default, SIZES.tokens, SIZES.tokens + 1)
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


def build(case: Case, sizes: Sizes = SIZES, *, randomised: bool = True) -> nn.Module:
    """Return the module of a case in float64.

    If ``randomised``, its parameters have noise, since zero weights could hide errors.
    """
    available = asdict(sizes) | {"bias": True, "filtered": True}
    available |= dict.fromkeys(("head_width", "rank"), sizes.width)
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

    ``tensors`` are the operands and the input of the attention block, (batch, tokens, dim);
    ``mask`` is boolean, True where attention is allowed.
    """

    tensors: list[Tensor]
    mask: Tensor | None


def draw(signature: Signature, sizes: Sizes = SIZES, mask: Tensor | None = None) -> Inputs:
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
    return Inputs([*operands, normal(BATCH, n, sizes.dim)], mask)


def features(kind: Kind, sizes: Sizes = SIZES) -> int:
    """Return the size of the last axis of a tensor."""
    return sizes.tokens if kind.is_paired else 1 if kind is Kind.GATES else sizes.width


def call(
    module: nn.Module, case: Case, inputs: Inputs, part: slice = slice(None), **options: Any
) -> Tensor:
    """Return the output of a case's module, for a part of the tokens, or of the queries.

    ``options`` are further arguments of ``forward``.
    """
    is_paired, unread = case.signature.is_paired, case.primitive.unread(case.params)

    def is_cut(port: Port) -> bool:
        is_by_query = port.is_query or (port.kind.is_paired and port.name not in unread)
        return is_by_query or not is_paired

    pairs = ((inputs.tensors[slot], port) for slot, port in case.signature.arguments())
    operands = [tensor[:, :, part] if is_cut(port) else tensor for tensor, port in pairs]
    result: Tensor = module(*operands, **extras(case, inputs, part), **options)
    return result


def extras(case: Case, inputs: Inputs, part: slice = slice(None)) -> dict[str, Any]:
    """Return the arguments, by name, that ``forward`` takes after the operands."""
    mask = inputs.mask if inputs.mask is None else inputs.mask[..., part, :]
    available = {"x": inputs.tensors[-1][:, part], "mask": mask}
    return {name: available[name] for name in case.primitive.extras}


def backward(
    module: nn.Module, case: Case, inputs: Inputs, dtype: torch.dtype | None = None
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the output, and the gradients of the inputs and parameters by name.

    ``dtype`` is a type for autocast.
    """
    leaves = [t.detach().clone().requires_grad_() for t in inputs.tensors]
    names = [*(port.name for port in case.signature.inputs), "x"]
    tensors = dict(zip(names, leaves, strict=True)) | dict(module.named_parameters())
    with torch.autocast("cpu", dtype, enabled=dtype is not None):
        result = call(module, case, Inputs(leaves, inputs.mask))
    return result.detach(), dict(zip(tensors, gradients(result, tensors.values()), strict=True))


def causal(n: int = SIZES.tokens) -> Tensor:
    """Return a causal mask (n, n)."""
    return torch.ones(n, n, dtype=torch.bool).tril()


def padding(n: int = SIZES.tokens, count: int = 2) -> Tensor:
    """Return a key padding mask (``BATCH``, 1, 1, n) that hides the last ``count`` keys."""
    return (torch.arange(n) < n - count).expand(BATCH, 1, 1, n)
