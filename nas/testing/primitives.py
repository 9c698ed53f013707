"""Promises of every primitive: shapes, gradients, masks, precision, costs and export."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor, nn
from torch.autograd.gradcheck import GradcheckError
from torch.func import functional_call

from nas.compiler.inlining import file_source, inlined
from nas.costs.operations import count_calls
from nas.genome.primitives import get
from nas.testing.cases import (
    BATCH,
    SIZES,
    Case,
    Inputs,
    backward,
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
    require_finite,
    survives_a_row_that_sees_no_key,
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
        AssertionError: a promise is broken; the message names it, the parameters, what was found
            and what was expected.
        GenomeError: there is no such primitive.
    """
    for case in cases(get(name)):
        keep(f"the primitive {case}", PROMISES, case)
        if reference is not None:
            keep(f"the primitive {case}", [equals_its_reference], case, reference)


def equals_its_reference(case: Case, reference: Callable[..., Tensor]) -> None:
    """The primitive's result equals the result of its reference."""
    for mask in (None, causal()):
        module, inputs = build(case), draw(case.signature, mask=mask)
        expected = reference(module, *inputs.operands, **extras(case, inputs))
        require_same(call(module, case, inputs), expected, "the result", 1e-10)


def explains_itself(case: Case) -> None:
    """It has a notation, source and docstring, and its class says whether it has parameters."""
    primitive = case.primitive
    for name in ("notation", "about", "source"):
        require(getattr(primitive, name), f"its {name} is empty; expected text")
    expected = any(True for _ in build(case).parameters())
    finding = f"is_parametric is {primitive.is_parametric}; expected has_parameters = {expected}"
    require(primitive.is_parametric == expected, f"{finding} in the class")
    accepted = {k: d.accept(case.params[k]) for k, d in primitive.parameters.items()}
    require(accepted == case.params, f"its domains turn {case.params} into {accepted}")


def has_the_declared_shape(case: Case) -> None:
    """The result has the declared kind and shape, and the dtype of its operands."""
    masks = {"no mask": None, "a causal mask": causal(), "a padding mask": padding()}
    for name, mask in masks.items():
        result = call(build(case), case, draw(case.signature, mask=mask))
        expected = (BATCH, SIZES.heads, SIZES.tokens, features(case.signature.output.kind))
        shape = tuple(result.shape)
        require(shape == expected, f"under {name}, the shape is {shape}; expected {expected}")
        require(result.dtype == torch.float64, f"under {name}, float64 in, {result.dtype} out")


class _Called(nn.Module):
    """A call of a case as a module whose inputs are the operands and the input of the block."""

    def __init__(self, case: Case, inputs: Inputs) -> None:
        super().__init__()
        self.module, self.case, self.inputs = build(case), case, inputs

    def forward(self, *tensors: Tensor) -> Tensor:
        return call(self.module, self.case, self.inputs.with_tensors(tensors))


def has_the_gradients_of_finite_differences(case: Case) -> None:
    """The primitive's gradients equal finite differences in float64."""
    inputs = draw(case.signature, mask=causal())
    called, count = _Called(case, inputs), len(inputs.tensors())
    weights = dict(called.named_parameters())

    def run(*tensors: Tensor) -> Tensor:
        named = dict(zip(weights, tensors[count:], strict=True))
        result: Tensor = functional_call(called, named, tensors[:count])
        return torch.where(torch.isfinite(result), result, 0.0)

    tensors = (*inputs.tensors(), *weights.values())
    leaves = [t.detach().clone().requires_grad_() for t in tensors]
    if not run(*leaves).requires_grad:
        return
    try:
        torch.autograd.gradcheck(run, leaves, fast_mode=True)
    except GradcheckError as error:
        names = [*(port.name for port in case.signature.inputs), "x", *weights]
        found = re.search(r"with respect to input (\d+)", str(error))
        name = names[int(found[1])] if found else "an input"
        raise AssertionError(f"the gradient of {name} is wrong: {error}") from error


def trains_every_parameter(case: Case) -> None:
    """Every parameter has a gradient."""
    module = build(case)
    _, gradients = backward(module, case, draw(case.signature))
    for name, _ in module.named_parameters():
        has_gradient = name in gradients and gradients[name].any()
        require(has_gradient, f"the parameter {name} has none; expected one, or no parameter")


def computes_a_part_of_a_sequence(case: Case) -> None:
    """The result at some tokens needs no other tokens, unless ``needs_all_tokens`` is true."""
    if case.primitive.needs_all_tokens:
        return
    mask = causal() if case.signature.is_paired else None
    inputs, module = draw(case.signature, mask=mask), build(case)
    whole = call(module, case, inputs)
    for part in (slice(0, 1), slice(1, 4), slice(4, SIZES.tokens)):
        start = {"start": part.start} if case.primitive.is_positional else {}
        what = f"the result for tokens {part.start} to {part.stop - 1} only"
        try:
            require_same(call(module, case, inputs, part, **start), whole[:, :, part], what, 1e-10)
        except AssertionError as error:
            advice = "if it needs other tokens, set needs_all_tokens = True in the class"
            raise AssertionError(f"{error}; {advice}") from None


def runs_in_16_bits(case: Case) -> None:
    """Under autocast to 16 bits, results differ from results in float64 by at most 3 %."""
    for dtype in (torch.bfloat16, torch.float16):
        drawn = draw(case.signature, mask=causal())
        inputs = drawn.with_tensors(t.to(dtype) for t in drawn.tensors())
        rounded = drawn.with_tensors(t.double() for t in inputs.tensors())
        expected = call(build(case), case, rounded).detach()
        result, gradients = backward(build(case).float(), case, inputs, dtype)
        size = expected[torch.isfinite(expected)].abs().max().item()
        require_same(result, expected, f"the result in {dtype}", 0.03 * (1 + size))
        require_finite(gradients, f"in {dtype}")


def creates_tensors_on_the_device_of_its_operands(case: Case) -> None:
    """The primitive creates tensors on the device of its operands."""
    module, drawn = build(case).to("meta"), draw(case.signature)
    inputs = drawn.with_tensors(t.to("meta") for t in drawn.tensors())
    for inputs.mask in (None, causal().to("meta")):
        result = call(module, case, inputs)
        require(result.is_meta, f"operands on meta, the result on {result.device}; expected meta")


def starts_from_the_seed(case: Case) -> None:
    """Modules of equal seeds and pickled modules compute the same."""
    first, second = (build(case, randomised=False) for _ in range(2))
    inputs = draw(case.signature, mask=causal())
    expected = call(first, case, inputs)
    for other, what in ((second, "a module"), (pickle.loads(pickle.dumps(first)), "a copy")):  # noqa: S301
        finding = f"{what} differs; expected random numbers in __init__ only, and plain attributes"
        require(torch.equal(call(other, case, inputs), expected), finding)


def has_a_cost_rule_for_each_operation(case: Case) -> None:
    """Torch tags the primitive's operations as pointwise, or ``elementwise`` declares them."""
    inputs = draw(case.signature)
    count_calls(_Called(case, inputs), tuple(inputs.tensors()), case.primitive.elementwise)


def is_exported_as_a_file(case: Case) -> None:
    """The primitive's source, inlined into a file, runs with torch only."""
    scope = {"__name__": "written"}
    exec(file_source(inlined([case.primitive.module])), scope)  # noqa: S102 - what is exported
    require(case.primitive.module.__name__ in scope, "the file lacks its class; expected it")


PROMISES: Final[tuple[Promise, ...]] = (
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
    has_a_cost_rule_for_each_operation,
    computes_a_part_of_a_sequence,
    is_exported_as_a_file,
)
