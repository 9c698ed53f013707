"""Promises of every primitive: shapes, gradients, masks, precision, costs and export."""

from __future__ import annotations

import inspect
import math
import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError
from torch.func import functional_call

from nas.compiler.inlining import file_source, inlined
from nas.costs.measured import UNCOUNTED
from nas.costs.operations import count_calls
from nas.genome.primitives import get
from nas.testing.cases import (
    BATCH,
    LARGE,
    SMALL,
    Case,
    Inputs,
    arguments,
    build,
    call,
    cases,
    causal,
    draw,
    extras,
    features,
    padding,
)
from nas.testing.masks import (
    does_not_see_hidden_keys,
    is_as_causal_as_declared,
    leaves_excluded_scores_excluded,
    require_finite_gradients,
    survives_a_row_that_sees_no_key,
)
from nas.testing.promises import Promise, keep, require, require_same
from nas.testing.sequences import computes_a_part_of_a_sequence


def check_primitive(name: str, reference: Callable[..., Tensor] | None = None) -> None:
    """Check a primitive against the promises of its family, for all parameters and signatures.

    Args:
        name: name of the primitive.
        reference: a plain function that computes the same result. It is called with the module and
            the operands in float64, and with ``x`` and ``mask`` by name if ``forward`` has these
            arguments.

    Raises:
        AssertionError: a promise is broken; the message names it, the parameters, the signature,
            what was found and what was expected.
        GenomeError: there is no such primitive.
    """
    for case in cases(get(name)):
        keep(case.described(), PROMISES, case)
        if reference is not None:
            keep(case.described(), [equals_its_reference], case, reference)


def equals_its_reference(case: Case, reference: Callable[..., Tensor]) -> None:
    """The primitive's result equals the result of its reference."""
    for mask in (None, causal(LARGE.tokens)):
        module, inputs = build(case, LARGE), draw(case.signature, LARGE, mask)
        expected = reference(module, *inputs.operands, **extras(case, inputs))
        require_same(call(module, case, inputs), expected, "the result", 1e-10)


def has_the_declared_shape(case: Case) -> None:
    """The result has the declared kind and shape, and the dtype of its operands."""
    for sizes in (SMALL, LARGE):
        masks = {
            "without a mask": None,
            "under a causal mask": causal(sizes.tokens),
            "under a padding mask": padding(sizes.tokens),
        }
        for name, mask in masks.items():
            result = call(build(case, sizes), case, draw(case.signature, sizes, mask))
            last = features(case.signature.output.kind, sizes)
            expected = (BATCH, sizes.heads, sizes.tokens, last)
            shape = tuple(result.shape)
            require(shape == expected, f"{name}, the shape is {shape}; expected {expected}")
            require(
                result.dtype == torch.float64,
                f"{name}, float64 in, {result.dtype} out; expected the dtype of the operands",
            )


def has_the_gradients_of_finite_differences(case: Case) -> None:
    """The primitive's gradients equal finite differences in float64."""
    for sizes in (SMALL, LARGE):
        module = build(case, sizes)
        inputs = draw(case.signature, sizes, causal(sizes.tokens) if sizes is LARGE else None)
        weights = dict(module.named_parameters())
        run = _function(module, case, inputs, list(weights))
        tensors = (*inputs.tensors(), *weights.values())
        leaves = [t.detach().clone().requires_grad_() for t in tensors]
        if not run(*leaves).requires_grad:
            continue
        names = [*(port.name for port in case.signature.inputs), "x", *weights]
        try:
            torch.autograd.gradcheck(run, leaves, fast_mode=True)
        except GradcheckError as error:
            found = re.search(r"with respect to input (\d+)", str(error))
            name = names[int(found[1])] if found else "an input"
            raise AssertionError(f"the gradient of {name} at {sizes} is wrong: {error}") from error


def _function(
    module: torch.nn.Module, case: Case, inputs: Inputs, names: list[str]
) -> Callable[..., Tensor]:
    count = len(inputs.tensors())

    def run(*tensors: Tensor) -> Tensor:
        replaced = inputs.with_tensors(tensors[:count])
        weights = dict(zip(names, tensors[count:], strict=True))
        result = functional_call(
            module, weights, tuple(arguments(case, replaced)), extras(case, replaced)
        )
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
        require(has_gradient, f"the parameter {name} has none; expected one, or no parameter")


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
        require_finite_gradients(case, leaves, module, f"in {dtype}")


def creates_tensors_on_the_device_of_its_operands(case: Case) -> None:
    """The primitive creates tensors on the device of its operands."""
    module = build(case, LARGE).to("meta")
    drawn = draw(case.signature, LARGE)
    inputs = drawn.with_tensors(t.to("meta") for t in drawn.tensors())
    for inputs.mask in (None, causal(LARGE.tokens).to("meta")):
        result = call(module, case, inputs)
        require(result.is_meta, f"operands on meta, the result on {result.device}; expected meta")


def starts_from_the_seed(case: Case) -> None:
    """Equal seeds give equal modules."""
    first, second = (build(case, LARGE, randomised=False) for _ in range(2))
    inputs = draw(case.signature, LARGE, causal(LARGE.tokens))
    same = torch.equal(call(first, case, inputs), call(second, case, inputs))
    require(same, "two modules of a seed differ; expected random numbers of torch in __init__ only")


def survives_pickle(case: Case) -> None:
    """A pickled module computes the same."""
    module, inputs = build(case, LARGE), draw(case.signature, LARGE, causal(LARGE.tokens))
    copy = pickle.loads(pickle.dumps(module))  # noqa: S301 - our own bytes
    same = torch.equal(call(copy, case, inputs), call(module, case, inputs))
    require(same, "its result differs; expected attributes that pickle preserves")


class _Called(torch.nn.Module):
    """A call of a case with fixed operands, as a function of the input of the block."""

    def __init__(self, case: Case, inputs: Inputs) -> None:
        super().__init__()
        self.module, self.case, self.inputs = build(case, LARGE), case, inputs

    def forward(self, x: Tensor) -> Tensor:
        return call(self.module, self.case, replace(self.inputs, x=x))


def has_a_cost_rule_for_each_operation(case: Case) -> None:
    """Torch tags the primitive's operations as pointwise, or ``elementwise`` declares them."""
    inputs = draw(case.signature, LARGE)
    count_calls(_Called(case, inputs), (inputs.x,), case.primitive.elementwise)


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
    **UNCOUNTED,
}


def declares_its_parameters(case: Case) -> None:
    """The primitive declares the keywords of its constructor, and whether it has parameters."""
    primitive = case.primitive
    has_parameters = any(True for _ in build(case, SMALL).parameters())
    require(
        primitive.is_parametric == has_parameters,
        f"is_parametric is {primitive.is_parametric}, and the module has "
        f"{'' if has_parameters else 'no '}parameters; expected has_parameters = {has_parameters} "
        "in the class",
    )
    accepted = {k: d.accept(case.params[k]) for k, d in primitive.parameters.items()}
    require(accepted == case.params, f"its domains turn {case.params} into {accepted}")
    if primitive.parameters:
        arguments = inspect.signature(primitive.module.__init__).parameters.values()
        keywords = {a.name for a in arguments if a.kind is a.KEYWORD_ONLY}
        require(
            keywords == set(primitive.parameters),
            f"the keyword-only arguments of __init__ are {sorted(keywords)}; expected "
            f"{sorted(primitive.parameters)}, as declared",
        )


def explains_itself(case: Case) -> None:
    """The primitive has a notation and a source, and its class a docstring."""
    require(case.primitive.notation, "it has no notation; expected a formula")
    require(case.primitive.about, "its class has no docstring; expected one")
    require(case.primitive.source, "it names no source; expected a paper")


def is_exported_as_a_file(case: Case) -> None:
    """The primitive's source, inlined into a file, runs with torch only."""
    scope = {"__name__": "written"}
    exec(file_source(inlined([case.primitive.module])), scope)  # noqa: S102 - what is exported
    require(case.primitive.module.__name__ in scope, "the file lacks its class; expected it")


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
    has_a_cost_rule_for_each_operation,
    computes_a_part_of_a_sequence,
    is_exported_as_a_file,
)
