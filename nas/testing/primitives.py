"""What every primitive promises, whatever it computes."""

from __future__ import annotations

import inspect
import math
import pickle
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch.func import functional_call
from torch.utils.flop_counter import FlopCounterMode

from nas.compiler.inlining import file_source, inlined
from nas.genome.primitives import Role, get
from nas.genome.primitives.base import Kind
from nas.testing.cases import (
    BATCH,
    LARGE,
    SMALL,
    Case,
    Inputs,
    build,
    call,
    cases,
    causal,
    draw,
    extras,
    moved,
    padding,
    without_row,
)
from nas.testing.promises import Promise, keep, require, require_same


def check_primitive(name: str, reference: Callable[..., Tensor] | None = None) -> None:
    """Hold a primitive to its family's promises, with every parameter and under every signature.

    Args:
        reference: the plainest form of its mathematics, called with the module and its operands
            in float64, then ``x`` and ``mask`` by name if ``forward`` asks for them.

    Raises:
        AssertionError: a promise is broken; a sentence that says which.
        GenomeError: there is no such primitive.
    """
    for case in cases(get(name)):
        keep(f"the primitive {case}", PROMISES, case)
        if reference is not None:
            keep(f"the primitive {case}", [equals_its_reference], case, reference)


def equals_its_reference(case: Case, reference: Callable[..., Tensor]) -> None:
    """It computes what its reference does."""
    for mask in (None, causal(LARGE.tokens)):
        module, inputs = build(case, LARGE), draw(case.signature, LARGE, mask)
        wanted = reference(module, *inputs.operands, **extras(case, inputs))
        require_same(call(module, case, inputs), wanted, "the result", 1e-10)


def has_the_declared_shape(case: Case) -> None:
    """A call gives the declared kind and shape, in its operands' dtype."""
    for sizes in (SMALL, LARGE):
        for mask in (None, causal(sizes.tokens), padding(sizes.tokens)):
            result = call(build(case, sizes), case, draw(case.signature, sizes, mask))
            is_tokens = case.signature.output.kind is Kind.TOKENS
            last = sizes.width if is_tokens else sizes.tokens
            wanted = (BATCH, sizes.heads, sizes.tokens, last)
            require(result.shape == wanted, f"the shape is {tuple(result.shape)}, not {wanted}")
            require(result.dtype == torch.float64, f"float64 in, {result.dtype} out")


def has_the_gradients_of_finite_differences(case: Case) -> None:
    """Its gradients equal finite differences in float64."""
    for sizes in (SMALL, LARGE):
        module = build(case, sizes)
        inputs = draw(case.signature, sizes, causal(sizes.tokens) if sizes is LARGE else None)
        weights = dict(module.named_parameters())
        run = _function(module, case, inputs, list(weights))
        given = (*inputs.tensors(), *weights.values())
        leaves = [t.detach().clone().requires_grad_() for t in given]
        if run(*leaves).requires_grad:
            torch.autograd.gradcheck(run, leaves, fast_mode=True)


def _function(
    module: torch.nn.Module, case: Case, inputs: Inputs, names: list[str]
) -> Callable[..., Tensor]:
    """The module as a function of operands, input and parameters."""
    count = len(inputs.tensors())

    def run(*tensors: Tensor) -> Tensor:
        given = extras(case, Inputs([], tensors[count - 1], inputs.mask))
        replaced = dict(zip(names, tensors[count:], strict=True))
        result = functional_call(module, replaced, tensors[: count - 1], given)
        return torch.where(torch.isfinite(result), result, 0.0)

    return run


def trains_every_parameter(case: Case) -> None:
    """Every parameter gets a gradient."""
    module = build(case, LARGE)
    result = call(module, case, draw(case.signature, LARGE))
    if result.requires_grad:
        torch.where(torch.isfinite(result), result, 0.0).square().sum().backward()
    for name, parameter in module.named_parameters():
        is_moved = parameter.grad is not None and bool(parameter.grad.abs().sum() > 0)
        require(is_moved, f"the parameter {name} gets none")


def does_not_see_hidden_keys(case: Case) -> None:
    """What a padding mask hides changes nothing."""
    mask = padding(LARGE.tokens)
    found = _leak(case, mask, mask[0, 0, 0])
    require(found <= 1e-12, f"a hidden key moves the result by {found:.2g}")


def is_as_causal_as_declared(case: Case) -> None:
    """Under a causal mask later tokens change nothing, unless it is declared to see them."""
    found = _leak(case, causal(LARGE.tokens), torch.arange(LARGE.tokens) < 5)
    if case.primitive.is_causal_safe(case.params):
        require(
            found <= 1e-12, f"is_causal_safe, but a later token moves the result by {found:.2g}"
        )
    else:
        require(found > 1e-12, "it is declared to see later tokens, and sees none")


def _leak(case: Case, mask: Tensor, kept: Tensor) -> float:
    """How far the tokens that are not kept move what the kept ones may see."""
    inputs, module = draw(case.signature, LARGE, mask), build(case, LARGE)
    results = [inputs, moved(inputs, case.signature, ~kept)]
    before, after = (call(module, case, each)[:, :, kept] for each in results)
    if case.signature.output.kind is Kind.SCORES:
        visible = mask.expand(*mask.shape[:-2], *kept.shape, *kept.shape)[..., kept, :]
        before, after = (torch.where(visible, t, 0.0) for t in (before, after))
    gap = torch.where(before == after, 0.0, before - after).abs()  # two infinities are equal
    return gap.nan_to_num(math.inf).max().item()


def survives_a_row_that_sees_no_key(case: Case) -> None:
    """A row that sees no key is free of NaN, in gradients too; a normaliser gives it zeros."""
    n = SMALL.tokens
    for mask in (without_row(n), causal(n) & without_row(n), torch.zeros(n, n).bool()):
        result = _run_backward(case, draw(case.signature, SMALL, mask))
        if case.signature.role is Role.NORMALIZE:
            require(not result.masked_select(~mask).any(), "weights of hidden keys are not zero")


def leaves_excluded_scores_excluded(case: Case) -> None:
    """Scores that are -inf stay so, or get no weight."""
    if all(port.kind is not Kind.SCORES for port in case.signature.inputs):
        return
    inputs = draw(case.signature, SMALL)
    excluded = torch.zeros(SMALL.tokens, SMALL.tokens, dtype=torch.bool)
    excluded[0, 2] = excluded[3, :4] = excluded[1] = True
    inputs.operands[0] = inputs.operands[0].masked_fill(excluded, -math.inf)
    for mask in (None, without_row(SMALL.tokens, 2), torch.ones(SMALL.tokens).bool()):
        inputs.mask = mask
        left = _run_backward(case, inputs).masked_select(excluded)
        if case.signature.output.kind is Kind.SCORES:
            require((left == -math.inf).all(), "an excluded score comes back")
        elif "scores" not in case.primitive.unread(case.params):
            require(not left.any(), "an excluded score gets a weight")


def _run_backward(case: Case, inputs: Inputs) -> Tensor:
    """The result, once it and all gradients are known to be free of NaN."""
    module = build(case, SMALL)
    leaves = [t.detach().clone().requires_grad_() for t in inputs.tensors()]
    result = call(module, case, Inputs(leaves[:-1], leaves[-1], inputs.mask))
    require(not result.isnan().any(), "the result has NaN")
    if result.requires_grad:
        finite = torch.where(torch.isfinite(result), result, 0.0)
        (finite * torch.randn_like(finite)).sum().backward()
    _require_finite_gradients([*leaves, *module.parameters()])
    return result.detach()


def _require_finite_gradients(tensors: list[Any]) -> None:
    is_finite = all(t.grad is None or bool(torch.isfinite(t.grad).all()) for t in tensors)
    require(is_finite, "a gradient has NaN or infinity")


def runs_in_16_bits(case: Case) -> None:
    """Under autocast to bfloat16 and float16 it gives what float64 gives, as far as 16 bits go."""
    for dtype in (torch.bfloat16, torch.float16):
        mask = causal(LARGE.tokens)
        short = [t.to(dtype) for t in draw(case.signature, LARGE, mask).tensors()]
        rounded = Inputs([t.double() for t in short[:-1]], short[-1].double(), mask)
        expected = call(build(case, LARGE), case, rounded).detach()
        module = build(case, LARGE).float()
        leaves = [t.requires_grad_() for t in short]
        with torch.autocast("cpu", dtype):
            result = call(module, case, Inputs(leaves[:-1], leaves[-1], mask))
        if result.requires_grad:
            torch.where(torch.isfinite(result), result, 0.0).float().sum().backward()
        size = expected[torch.isfinite(expected)].abs().max().item()
        require_same(result, expected, f"the result in {dtype}", 0.03 * (1 + size))
        _require_finite_gradients([*leaves, *module.parameters()])


def makes_its_tensors_where_its_operands_are(case: Case) -> None:
    """On another device it makes its tensors there."""
    module = build(case, LARGE).to("meta")
    inputs = draw(case.signature, LARGE)
    for mask in (None, causal(LARGE.tokens).to("meta")):
        there = [t.to("meta") for t in inputs.tensors()]
        result = call(module, case, Inputs(there[:-1], there[-1], mask))
        require(result.is_meta, f"operands on meta, the result on {result.device}")


def starts_from_the_seed(case: Case) -> None:
    """The same seed gives the same module."""
    first, second = (build(case, LARGE, randomised=False) for _ in range(2))
    inputs = draw(case.signature, LARGE, causal(LARGE.tokens))
    require(torch.equal(call(first, case, inputs), call(second, case, inputs)), "two differ")


def survives_pickle(case: Case) -> None:
    """A pickled module computes the same."""
    module, inputs = build(case, LARGE), draw(case.signature, LARGE, causal(LARGE.tokens))
    twin = pickle.loads(pickle.dumps(module))  # noqa: S301 - our own bytes
    require(torch.equal(call(twin, case, inputs), call(module, case, inputs)), "it does not")


def costs_what_torch_counts(case: Case) -> None:
    """Its macs are the multiply-adds that torch counts."""
    counted: dict[Any, Any] = {torch.ops.aten.addcmul: _addcmul}
    for sizes in (SMALL, LARGE):
        inputs, module = draw(case.signature, sizes), build(case, sizes)
        single = Inputs([t[:1] for t in inputs.operands], inputs.x[:1], None)
        counter = FlopCounterMode(display=False, custom_mapping=counted)
        with counter, torch.no_grad():
            call(module, case, single)
        # One multiply-add is two of torch's floating point operations.
        said, found = case.primitive.macs(sizes, case.params), counter.get_total_flops() / 2
        require(said == found, f"macs says {said:,} at {sizes}, torch counts {found:,.0f}")


def _addcmul(*shapes: Any, out_shape: tuple[int, ...] = (), **rest: Any) -> int:
    return 2 * math.prod(out_shape)


def is_the_product_of_its_factors(case: Case) -> None:
    """Declared features multiply to its scores, up to a declared number for each query."""
    factors = case.primitive.factors
    if factors is None:
        return
    module, inputs = build(case, LARGE), draw(case.signature, LARGE)
    query, key = inputs.operands
    scores = (getattr(module, factors.query)(query) if factors.query else query) @ (
        getattr(module, factors.key)(key) if factors.key else key
    ).mT
    if factors.is_scaled:
        scores = scores * LARGE.width**-0.5
    if factors.bias:
        scores = scores + getattr(module, factors.bias)(key).mT
    difference = call(module, case, inputs) - scores
    if factors.has_query_term:
        difference = difference - difference[..., :1]
    gap = difference.abs().max().item()
    require(gap <= 1e-9, f"its scores and the product of its factors differ by {gap:.2g}")


def declares_its_parameters(case: Case) -> None:
    """What is declared are the constructor's keywords, and whether it learns."""
    primitive = case.primitive
    has_parameters = any(True for _ in build(case, SMALL).parameters())
    require(primitive.is_parametric == has_parameters, "has_parameters is not what it has")
    accepted = {k: d.accept(case.params[k]) for k, d in primitive.parameters.items()}
    require(accepted == case.params, f"its domains make {accepted} of {case.params}")
    if primitive.parameters:
        arguments = inspect.signature(primitive.module.__init__).parameters.values()
        keywords = {a.name for a in arguments if a.kind is a.KEYWORD_ONLY}
        require(keywords == set(primitive.parameters), f"the constructor's are {sorted(keywords)}")


def explains_itself(case: Case) -> None:
    """Its notation names ports and parameters only; class and source are described."""
    ports = {port.name: port.name for port in case.signature.inputs}
    require(case.primitive.notation.format(**(case.params | ports)), "it has no notation")
    require(case.primitive.about, "its class has no docstring")
    require(case.primitive.source, "it names no source")


def is_exported_as_a_file(case: Case) -> None:
    """Its source is a file that runs with torch alone."""
    scope = {"__name__": "written"}
    exec(file_source(inlined([case.primitive.module])), scope)  # noqa: S102 - what is exported
    require(case.primitive.module.__name__ in scope, "the file has not its class")


PROMISES: Final[tuple[Promise, ...]] = (
    declares_its_parameters,
    explains_itself,
    has_the_declared_shape,
    has_the_gradients_of_finite_differences,
    trains_every_parameter,
    does_not_see_hidden_keys,
    is_as_causal_as_declared,
    survives_a_row_that_sees_no_key,
    leaves_excluded_scores_excluded,
    runs_in_16_bits,
    makes_its_tensors_where_its_operands_are,
    starts_from_the_seed,
    survives_pickle,
    costs_what_torch_counts,
    is_the_product_of_its_factors,
    is_exported_as_a_file,
)
