"""Promises of every primitive: shapes, gradients, masks, precision, costs and export."""

from __future__ import annotations

import inspect
import math
import pickle
from collections.abc import Callable
from dataclasses import replace
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
    changed_at,
    draw,
    extras,
    features,
    padding,
    without_row,
)
from nas.testing.promises import Promise, keep, require, require_same


def check_primitive(name: str, reference: Callable[..., Tensor] | None = None) -> None:
    """Check a primitive against the promises of its family, for all parameters and signatures.

    Args:
        name: name of the primitive.
        reference: a plain function that computes the same result. It is called with the module and
            the operands in float64, and with ``x`` and ``mask`` by name if ``forward`` has these
            arguments.

    Raises:
        AssertionError: a promise is broken; the message names it, and the parameters.
        GenomeError: there is no such primitive.
    """
    for case in cases(get(name)):
        keep(f"the primitive {case}", PROMISES, case)
        if reference is not None:
            keep(f"the primitive {case}", [equals_its_reference], case, reference)


def equals_its_reference(case: Case, reference: Callable[..., Tensor]) -> None:
    """The primitive's result equals the result of its reference."""
    for mask in (None, causal(LARGE.tokens)):
        module, inputs = build(case, LARGE), draw(case.signature, LARGE, mask)
        expected = reference(module, *inputs.operands, **extras(case, inputs))
        require_same(call(module, case, inputs), expected, "the result", 1e-10)


def has_the_declared_shape(case: Case) -> None:
    """The result has the declared kind and shape, and the dtype of its operands."""
    for sizes in (SMALL, LARGE):
        for mask in (None, causal(sizes.tokens), padding(sizes.tokens)):
            result = call(build(case, sizes), case, draw(case.signature, sizes, mask))
            last = features(case.signature.output.kind, sizes)
            expected = (BATCH, sizes.heads, sizes.tokens, last)
            shape = tuple(result.shape)
            require(shape == expected, f"the shape is {shape}; expected {expected}")
            require(result.dtype == torch.float64, f"float64 in, {result.dtype} out")


def has_the_gradients_of_finite_differences(case: Case) -> None:
    """The primitive's gradients equal finite differences in float64."""
    for sizes in (SMALL, LARGE):
        module = build(case, sizes)
        inputs = draw(case.signature, sizes, causal(sizes.tokens) if sizes is LARGE else None)
        weights = dict(module.named_parameters())
        run = _function(module, case, inputs, list(weights))
        tensors = (*inputs.tensors(), *weights.values())
        leaves = [t.detach().clone().requires_grad_() for t in tensors]
        if run(*leaves).requires_grad:
            torch.autograd.gradcheck(run, leaves, fast_mode=True)


def _function(
    module: torch.nn.Module, case: Case, inputs: Inputs, names: list[str]
) -> Callable[..., Tensor]:
    count = len(inputs.tensors())

    def run(*tensors: Tensor) -> Tensor:
        replaced = inputs.with_tensors(tensors[:count])
        weights = dict(zip(names, tensors[count:], strict=True))
        operands = tuple(replaced.operands[slot] for slot, _ in case.signature.arguments())
        result = functional_call(module, weights, operands, extras(case, replaced))
        return torch.where(torch.isfinite(result), result, 0.0)

    return run


def trains_every_parameter(case: Case) -> None:
    """Every parameter has a gradient."""
    module = build(case, LARGE)
    result = call(module, case, draw(case.signature, LARGE))
    if result.requires_grad:
        torch.where(torch.isfinite(result), result, 0.0).square().sum().backward()
    for name, parameter in module.named_parameters():
        has_gradient = parameter.grad is not None and bool(parameter.grad.any())
        require(has_gradient, f"the parameter {name} has none")


def does_not_see_hidden_keys(case: Case) -> None:
    """Keys that a padding mask hides do not change the result."""
    mask = padding(LARGE.tokens)
    gap = _influence(case, mask, mask[0, 0, 0])
    require(gap <= 1e-12, f"a hidden key changes the result by {gap:.2g}")


def is_as_causal_as_declared(case: Case) -> None:
    """A causal mask hides later tokens, unless ``is_causal_safe`` is false."""
    gap = _influence(case, causal(LARGE.tokens), torch.arange(LARGE.tokens) < 5)
    if case.primitive.is_causal_safe(case.params):
        require(gap <= 1e-12, f"is_causal_safe, but a later token changes the result by {gap:.2g}")
    else:
        require(gap > 1e-12, "it is declared to see later tokens, and sees none")


def _influence(case: Case, mask: Tensor, kept: Tensor) -> float:
    """Return the largest change of results at ``kept`` tokens when all other tokens change.

    Scores that the mask hides are ignored.

    Args:
        case: the case.
        mask: boolean mask, True where attention is allowed.
        kept: boolean tensor (tokens), True at tokens whose values do not change.
    """
    inputs, module = draw(case.signature, LARGE, mask), build(case, LARGE)
    results = [inputs, changed_at(inputs, case.signature, ~kept)]
    before, after = (call(module, case, each)[:, :, kept] for each in results)
    if case.signature.output.kind is Kind.SCORES:
        visible = mask.expand(*mask.shape[:-2], *kept.shape, *kept.shape)[..., kept, :]
        before, after = (torch.where(visible, t, 0.0) for t in (before, after))
    gap = torch.where(before == after, 0.0, before - after).abs()  # two infinities are equal
    return gap.nan_to_num(math.inf).max().item()


def survives_a_row_that_sees_no_key(case: Case) -> None:
    """A query without visible keys causes no NaN, and a normaliser gives it zero weights."""
    n = SMALL.tokens
    for mask in (without_row(n), causal(n) & without_row(n), torch.zeros(n, n).bool()):
        result = _run_backward(case, draw(case.signature, SMALL, mask))
        if case.signature.role is Role.NORMALIZE:
            require(not result.masked_select(~mask).any(), "weights of hidden keys are not zero")


def leaves_excluded_scores_excluded(case: Case) -> None:
    """Scores of -inf remain -inf, and a normaliser gives them the weight zero."""
    if all(port.kind is not Kind.SCORES for port in case.signature.inputs):
        return
    inputs = draw(case.signature, SMALL)
    excluded = torch.zeros(SMALL.tokens, SMALL.tokens, dtype=torch.bool)
    excluded[0, 2] = excluded[3, :4] = excluded[1] = True
    inputs.operands[0] = inputs.operands[0].masked_fill(excluded, -math.inf)
    for inputs.mask in (None, without_row(SMALL.tokens, 2), torch.ones(SMALL.tokens).bool()):
        results = _run_backward(case, inputs).masked_select(excluded)
        if case.signature.output.kind is Kind.SCORES:
            require((results == -math.inf).all(), "an excluded score comes back")
        elif "scores" not in case.primitive.unread(case.params):
            require(not results.any(), "an excluded score gets a weight")


def _run_backward(case: Case, inputs: Inputs) -> Tensor:
    """Return the result; raise AssertionError if the result or a gradient has NaN."""
    module = build(case, SMALL)
    leaves = [t.detach().clone().requires_grad_() for t in inputs.tensors()]
    result = call(module, case, inputs.with_tensors(leaves))
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
    """Under autocast to 16 bits, results differ from results in float64 by at most 3 %."""
    for dtype in (torch.bfloat16, torch.float16):
        inputs = draw(case.signature, LARGE, causal(LARGE.tokens))
        leaves = [t.to(dtype).requires_grad_() for t in inputs.tensors()]
        rounded = inputs.with_tensors(leaf.detach().double() for leaf in leaves)
        expected = call(build(case, LARGE), case, rounded).detach()
        module = build(case, LARGE).float()
        with torch.autocast("cpu", dtype):
            result = call(module, case, inputs.with_tensors(leaves))
        if result.requires_grad:
            torch.where(torch.isfinite(result), result, 0.0).float().sum().backward()
        size = expected[torch.isfinite(expected)].abs().max().item()
        require_same(result, expected, f"the result in {dtype}", 0.03 * (1 + size))
        _require_finite_gradients([*leaves, *module.parameters()])


def creates_tensors_on_the_device_of_its_operands(case: Case) -> None:
    """The primitive creates tensors on the device of its operands."""
    module = build(case, LARGE).to("meta")
    drawn = draw(case.signature, LARGE)
    inputs = drawn.with_tensors(t.to("meta") for t in drawn.tensors())
    for inputs.mask in (None, causal(LARGE.tokens).to("meta")):
        result = call(module, case, inputs)
        require(result.is_meta, f"operands on meta, the result on {result.device}")


def starts_from_the_seed(case: Case) -> None:
    """Equal seeds give equal modules."""
    first, second = (build(case, LARGE, randomised=False) for _ in range(2))
    inputs = draw(case.signature, LARGE, causal(LARGE.tokens))
    same = torch.equal(call(first, case, inputs), call(second, case, inputs))
    require(same, "two modules of a seed differ")


def survives_pickle(case: Case) -> None:
    """A pickled module computes the same."""
    module, inputs = build(case, LARGE), draw(case.signature, LARGE, causal(LARGE.tokens))
    copy = pickle.loads(pickle.dumps(module))  # noqa: S301 - our own bytes
    same = torch.equal(call(copy, case, inputs), call(module, case, inputs))
    require(same, "its result differs")


def costs_what_torch_counts(case: Case) -> None:
    """The primitive's ``macs`` equal the multiply-adds that torch counts."""
    for sizes in (SMALL, LARGE):
        inputs, module = draw(case.signature, sizes), build(case, sizes)
        single = inputs.with_tensors(t[:1] for t in inputs.tensors())
        counter = FlopCounterMode(display=False, custom_mapping=OPERATION_COUNTS)
        with counter, torch.no_grad():
            call(module, case, single)
        # One multiply-add is two of torch's floating point operations.
        declared, actual = case.primitive.macs(sizes, case.params), counter.get_total_flops() / 2
        require(declared == actual, f"macs is {declared:,} at {sizes}, torch counts {actual:,.0f}")


def _addcmul(*shapes: Any, out_shape: tuple[int, ...] = (), **rest: Any) -> int:
    return 2 * math.prod(out_shape)


def _solve(left: Any, right: Any, *args: Any, out_shape: Any = (), **rest: Any) -> int:
    return right[-2] * (right[-2] - 1) * math.prod(right) // right[-2]  # unit diagonal


def _solve_square(left: tuple[int, ...], *shapes: Any, **rest: Any) -> int:
    *many, width, _ = left
    return 2 * math.prod(many) * (width * (width**2 - 1) // 3 + width**2)  # elimination


# Twice the multiply-adds of operations that torch does not count.
OPERATION_COUNTS: Final[dict[Any, Any]] = {
    torch.ops.aten.addcmul: _addcmul,
    torch.ops.aten.linalg_solve_triangular: _solve,
    torch.ops.aten._linalg_solve_ex: _solve_square,
}


def continues_a_sequence(case: Case) -> None:
    """A sequence in parts, continued by ``advance``, gives the same, and the state has its size."""
    has_features = Kind.FEATURE_GATES in (port.kind for port in case.signature.inputs)
    sizes = replace(LARGE, gates=LARGE.width if has_features else 1)
    size = case.primitive.state(sizes, case.params) if case.primitive.needs_all_tokens else None
    if size is None:
        return
    module, inputs = build(case, LARGE), draw(case.signature, LARGE)
    given = {name: value for name, value in extras(case, inputs).items() if name != "mask"}
    state, parts = None, []
    for part in (slice(0, 1), slice(1, 4), slice(4, LARGE.tokens)):
        operands = [tensor[:, :, part] for tensor in inputs.operands]
        read = {name: value[:, part] for name, value in given.items()}
        result, state = module.advance(state, *operands, **read)  # type: ignore[operator]
        parts.append(result)
    require_same(torch.cat(parts, dim=2), call(module, case, inputs), "the sequence", 1e-10)
    count = sum(tensor[0].numel() for tensor in state or ())
    require(count == size, f"the state has {count} elements; expected {size}, as declared")


def is_the_product_of_its_factors(case: Case) -> None:
    """Scores are products of the declared maps of query and key, up to a constant per query."""
    factors = case.primitive.factors
    if factors is None or factors.is_gated:
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
    """The primitive declares the keywords of its constructor, and whether it has parameters."""
    primitive = case.primitive
    has_parameters = any(True for _ in build(case, SMALL).parameters())
    require(primitive.is_parametric == has_parameters, "is_parametric is wrong")
    accepted = {k: d.accept(case.params[k]) for k, d in primitive.parameters.items()}
    require(accepted == case.params, f"its domains turn {case.params} into {accepted}")
    if primitive.parameters:
        arguments = inspect.signature(primitive.module.__init__).parameters.values()
        keywords = {a.name for a in arguments if a.kind is a.KEYWORD_ONLY}
        require(keywords == set(primitive.parameters), f"the constructor's are {sorted(keywords)}")


def explains_itself(case: Case) -> None:
    """The notation names only ports and parameters; the class has a docstring and a source."""
    ports = {port.name: port.name for port in case.signature.inputs}
    require(case.primitive.notation.format(**(case.params | ports)), "it has no notation")
    require(case.primitive.about, "its class has no docstring")
    require(case.primitive.source, "it names no source")


def is_exported_as_a_file(case: Case) -> None:
    """The primitive's source, inlined into a file, runs with torch only."""
    scope = {"__name__": "written"}
    exec(file_source(inlined([case.primitive.module])), scope)  # noqa: S102 - what is exported
    require(case.primitive.module.__name__ in scope, "the file lacks its class")


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
    creates_tensors_on_the_device_of_its_operands,
    starts_from_the_seed,
    survives_pickle,
    costs_what_torch_counts,
    continues_a_sequence,
    is_the_product_of_its_factors,
    is_exported_as_a_file,
)
