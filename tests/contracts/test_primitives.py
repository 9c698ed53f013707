"""What every primitive promises, whatever it computes; each registered one is tried in turn.

A case is a primitive with parameters. Each value of a choice or flag has a case, and numbers
have their lowest value and one more; combinations that the primitive excludes are completed to
the nearest allowed one.
"""

from __future__ import annotations

import inspect
import itertools
import math
import warnings
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch.utils.flop_counter import FlopCounterMode

from nas.primitives import Role, Sizes, get, names
from nas.primitives.base import Kind, Primitive, Signature
from nas.primitives.domains import Choice, Domain, Flag, Integer

BATCH = 2
SMALL = Sizes(dim=8, heads=2, width=4, tokens=5)
LARGE = Sizes(dim=24, heads=4, width=6, tokens=9)
BY_SIZE = pytest.mark.parametrize("sizes", [SMALL, LARGE], ids=["small", "large"])
# A length that a module is built for must hold the tests' sequences.
ROOMY = {"tokens": (LARGE.tokens, LARGE.tokens + 1)}


@dataclass(frozen=True)
class Case:
    """A primitive with all of its parameters."""

    primitive: Primitive
    params: dict[str, Any]

    def __str__(self) -> str:
        defaults = self.primitive.defaults()
        changed = [f"{k}={v}" for k, v in self.params.items() if v != defaults[k]]
        return "-".join([self.primitive.name, *changed])


def values(name: str, domain: Domain) -> tuple[Any, ...]:
    """The values of a parameter that have a case of their own, the default first."""
    if name in ROOMY:
        return (domain.default, *ROOMY[name])
    if isinstance(domain, Choice):
        return tuple(sorted(domain.values, key=lambda value: value != domain.default))
    if isinstance(domain, Flag):
        return (domain.default, not domain.default)
    if isinstance(domain, Integer):
        return (domain.default, domain.low, min(domain.low + 1, domain.high))
    return (domain.default,)


def is_allowed(primitive: Primitive, params: dict[str, Any]) -> bool:
    try:
        primitive.check(params)
    except ValueError:
        return False
    return True


def cases(primitive: Primitive) -> list[Case]:
    """The defaults, and for each value of each parameter the nearest allowed combination."""
    found = [primitive.defaults()]
    domains = {k: values(k, domain) for k, domain in primitive.parameters.items()}
    for name, value in ((k, v) for k, several in domains.items() for v in several):
        rest = [k for k in domains if k != name]
        for combination in itertools.product(*(domains[k] for k in reversed(rest))):
            params = {name: value} | dict(zip(reversed(rest), combination, strict=True))
            ordered = {k: params[k] for k in domains}
            if is_allowed(primitive, ordered):
                if ordered not in found:
                    found.append(ordered)
                break
    return [Case(primitive, params) for params in found]


CASES = [case for name in names() for case in cases(get(name))]
READINGS = [(case, signature) for case in CASES for signature in case.primitive.signatures]
READING_IDS = [
    f"{case}-{s.inputs[0].kind.value}" if len(case.primitive.signatures) > 1 else f"{case}"
    for case, s in READINGS
]


def build(case: Case, sizes: Sizes, *, randomised: bool = True) -> torch.nn.Module:
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
        return [*self.operands, self.x]


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


def call(module: torch.nn.Module, case: Case, inputs: Inputs) -> Tensor:
    given = {"x": inputs.x, "mask": inputs.mask}
    extras = {name: given[name] for name in case.primitive.extras}
    result = module(*inputs.operands, **extras)
    assert isinstance(result, Tensor)
    return result


def causal(n: int) -> Tensor:
    return torch.ones(n, n, dtype=torch.bool).tril()


def padding(n: int, count: int = 2) -> Tensor:
    """The last ``count`` keys are padding, in the shape of a key padding mask."""
    return (torch.arange(n) < n - count).expand(BATCH, 1, 1, n)


def without_row(n: int, row: int = 1) -> Tensor:
    """A mask under which one row sees no key."""
    mask = torch.ones(n, n, dtype=torch.bool)
    mask[row] = False
    return mask


def rows(result: Tensor, kind: Kind, kept: Tensor, mask: Tensor) -> Tensor:
    """The part of a result that an earlier, or an unpadded, token may see."""
    result = result[:, :, kept]
    if kind is Kind.SCORES:
        visible = mask.expand(*mask.shape[:-2], kept.shape[0], kept.shape[0])[..., kept, :]
        return torch.where(visible, result, 0.0)
    return result


def run_backward(case: Case, inputs: Inputs) -> Tensor:
    """The result, once it and all gradients are known to be free of NaN."""
    module = build(case, SMALL)
    leaves = [t.detach().clone().requires_grad_() for t in inputs.tensors()]
    result = call(module, case, Inputs(leaves[:-1], leaves[-1], inputs.mask))
    assert not result.isnan().any()
    if result.requires_grad:
        finite = torch.where(torch.isfinite(result), result, 0.0)
        (finite * torch.randn_like(finite)).sum().backward()
    for tensor in (*leaves, *module.parameters()):
        assert tensor.grad is None or bool(torch.isfinite(tensor.grad).all())
    return result.detach()


@pytest.mark.parametrize(("case", "signature"), READINGS, ids=READING_IDS)
class TestPrimitive:
    """The contract, for every case and every reading of its primitive."""

    @BY_SIZE
    def test_forward_has_the_declared_shape(
        self, case: Case, signature: Signature, sizes: Sizes
    ) -> None:
        for mask in (None, causal(sizes.tokens), padding(sizes.tokens)):
            result = call(build(case, sizes), case, draw(signature, sizes, mask))
            is_tokens = signature.output.kind is Kind.TOKENS
            last = sizes.width if is_tokens else sizes.tokens
            assert result.shape == (BATCH, sizes.heads, sizes.tokens, last)
            assert result.dtype == torch.float64

    @BY_SIZE
    def test_gradients_equal_finite_differences(
        self, case: Case, signature: Signature, sizes: Sizes
    ) -> None:
        module = build(case, sizes)
        inputs = draw(signature, sizes, causal(sizes.tokens) if sizes is LARGE else None)
        weights = dict(module.named_parameters())
        count = len(inputs.tensors())

        def run(*tensors: Tensor) -> Tensor:
            given = {"x": tensors[count - 1], "mask": inputs.mask}
            extras = {name: given[name] for name in case.primitive.extras}
            replaced = dict(zip(weights, tensors[count:], strict=True))
            result = functional_call(module, replaced, tensors[: count - 1], extras)
            return torch.where(torch.isfinite(result), result, 0.0)

        leaves = [
            t.detach().clone().requires_grad_() for t in (*inputs.tensors(), *weights.values())
        ]
        if run(*leaves).requires_grad:
            assert torch.autograd.gradcheck(run, leaves, fast_mode=True)

    def test_every_parameter_gets_a_gradient(self, case: Case, signature: Signature) -> None:
        module = build(case, LARGE)
        result = call(module, case, draw(signature, LARGE))
        if result.requires_grad:
            torch.where(torch.isfinite(result), result, 0.0).square().sum().backward()
        for name, parameter in module.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.abs().sum() > 0, name

    def test_hidden_keys_change_nothing(self, case: Case, signature: Signature) -> None:
        mask = padding(LARGE.tokens)
        kept = mask[0, 0, 0]
        inputs, module = draw(signature, LARGE, mask), build(case, LARGE)
        before = rows(call(module, case, inputs), signature.output.kind, kept, mask)
        after = rows(
            call(module, case, moved(inputs, signature, ~kept)), signature.output.kind, kept, mask
        )
        torch.testing.assert_close(after, before, rtol=0.0, atol=1e-12)

    def test_causal_safety_is_as_declared(self, case: Case, signature: Signature) -> None:
        mask = causal(LARGE.tokens)
        kept = torch.arange(LARGE.tokens) < 5
        inputs, module = draw(signature, LARGE, mask), build(case, LARGE)
        before = rows(call(module, case, inputs), signature.output.kind, kept, mask)
        after = rows(
            call(module, case, moved(inputs, signature, ~kept)), signature.output.kind, kept, mask
        )
        leaks = not torch.allclose(after, before, rtol=0.0, atol=1e-12)
        assert leaks != case.primitive.is_causal_safe(case.params)

    def test_a_row_that_sees_no_key_is_free_of_nan(self, case: Case, signature: Signature) -> None:
        n = SMALL.tokens
        for mask in (without_row(n), causal(n) & without_row(n), torch.zeros(n, n).bool()):
            result = run_backward(case, draw(signature, SMALL, mask))
            if signature.role is Role.NORMALIZE:
                assert not result[:, :, 1].any()
                assert not result.masked_select(~mask).any()

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
    def test_runs_in_16_bits_under_autocast(
        self, case: Case, signature: Signature, dtype: torch.dtype
    ) -> None:
        mask = causal(LARGE.tokens)
        exact = build(case, LARGE)
        wide = draw(signature, LARGE, mask)
        short = [t.to(dtype) for t in wide.tensors()]
        rounded = Inputs([t.double() for t in short[:-1]], short[-1].double(), mask)
        expected = call(exact, case, rounded).detach()
        module = build(case, LARGE).float()
        leaves = [t.requires_grad_() for t in short]
        with torch.autocast("cpu", dtype):
            result = call(module, case, Inputs(leaves[:-1], leaves[-1], mask))
        if result.requires_grad:
            torch.where(torch.isfinite(result), result, 0.0).float().sum().backward()
        size = expected[torch.isfinite(expected)].abs().max().item()
        torch.testing.assert_close(result.double(), expected, rtol=0.03, atol=0.03 * (1 + size))
        for tensor in (*leaves, *module.parameters()):
            assert tensor.grad is None or bool(torch.isfinite(tensor.grad).all())

    def test_makes_its_tensors_where_its_operands_are(
        self, case: Case, signature: Signature
    ) -> None:
        module = build(case, LARGE).to("meta")
        inputs = draw(signature, LARGE)
        for mask in (None, causal(LARGE.tokens).to("meta")):
            there = [t.to("meta") for t in inputs.tensors()]
            assert call(module, case, Inputs(there[:-1], there[-1], mask)).is_meta

    def test_the_same_seed_gives_the_same_module(self, case: Case, signature: Signature) -> None:
        first, second = (build(case, LARGE, randomised=False) for _ in range(2))
        inputs = draw(signature, LARGE, causal(LARGE.tokens))
        assert torch.equal(call(first, case, inputs), call(second, case, inputs))

    @BY_SIZE
    def test_macs_equal_the_multiply_adds_that_torch_counts(
        self, case: Case, signature: Signature, sizes: Sizes
    ) -> None:
        inputs = draw(signature, sizes)
        single = Inputs([t[:1] for t in inputs.operands], inputs.x[:1], None)
        module = build(case, sizes)
        counter = FlopCounterMode(display=False, custom_mapping={torch.ops.aten.addcmul: _addcmul})
        with counter, torch.no_grad():
            call(module, case, single)
        # One multiply-add is two of torch's floating point operations.
        assert case.primitive.macs(sizes, case.params) * 2 == counter.get_total_flops()


def _addcmul(*shapes: Any, out_shape: Any = None, **rest: Any) -> int:
    return 2 * math.prod(out_shape)


SCORED = [r for r in READINGS if any(port.kind is Kind.SCORES for port in r[1].inputs)]


@pytest.mark.parametrize(("case", "signature"), SCORED, ids=[f"{case}" for case, _ in SCORED])
class TestPrimitiveOfScores:
    """What holds for those that read scores: adjustments and normalisers."""

    def test_excluded_scores_stay_excluded(self, case: Case, signature: Signature) -> None:
        inputs = draw(signature, SMALL)
        excluded = torch.zeros(SMALL.tokens, SMALL.tokens, dtype=torch.bool)
        excluded[0, 2] = excluded[3, :4] = excluded[1] = True
        inputs.operands[0] = inputs.operands[0].masked_fill(excluded, -math.inf)
        for mask in (None, without_row(SMALL.tokens, 2), torch.ones(SMALL.tokens).bool()):
            inputs.mask = mask
            result = run_backward(case, inputs)
            if signature.output.kind is Kind.SCORES:
                assert bool((result.masked_select(excluded) == -math.inf).all())
            elif case.primitive.name != "uniform":  # which ignores its scores
                assert not result.masked_select(excluded).any()


@pytest.mark.parametrize("case", CASES, ids=str)
class TestDeclaration:
    """What the declaration says of the class."""

    def test_parametric_primitives_are_those_with_parameters(self, case: Case) -> None:
        has_parameters = any(True for _ in build(case, SMALL).parameters())
        assert case.primitive.is_parametric == has_parameters

    def test_parameters_are_those_of_the_constructor(self, case: Case) -> None:
        accepted = {k: d.accept(case.params[k]) for k, d in case.primitive.parameters.items()}
        assert accepted == case.params
        if case.primitive.parameters:
            arguments = inspect.signature(case.primitive.module.__init__).parameters.values()
            keywords = {a.name for a in arguments if a.kind is a.KEYWORD_ONLY}
            assert keywords == set(case.primitive.parameters)

    def test_notation_names_ports_and_parameters_only(self, case: Case) -> None:
        for signature in case.primitive.signatures:
            ports = {port.name: port.name for port in signature.inputs}
            assert case.primitive.notation.format(**(case.params | ports))
        assert case.primitive.about
        assert case.primitive.source
