"""Promises of every primitive: shapes, gradients, masks, precision, costs and export."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor, nn

from nas.compiler.inlining import file_source, inlined
from nas.costs.operations import count_calls
from nas.costs.profile import WithInput
from nas.genome import ModelSizes
from nas.genome.primitives import Role, get
from nas.genome.primitives.base import Kind
from nas.testing.cases import (
    BATCH,
    SIZES,
    Case,
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
from nas.testing.promises import PROBED, Promise, keep, require, require_same
from nas.training.dependence import Constant, Leak, probe


def check_primitive(name: str, reference: Callable[..., Tensor] | None = None) -> None:
    """Check a primitive against the promises of its family, for all parameters and signatures.

    Args:
        reference: a plain function that computes the same result. It is called with the module and
            the operands in float64, and with those of ``x`` and ``mask`` that ``forward`` has.
    """
    for case in cases(get(name)):
        keep(f"the primitive {case}", PROMISES, case)
        if reference is not None:
            keep(f"the primitive {case}", [equals_its_reference], case, reference)


def equals_its_reference(case: Case, reference: Callable[..., Tensor]) -> None:
    """The primitive's result equals the result of its reference."""
    for mask in (None, causal()):
        module, inputs = build(case), draw(case.signature, mask=mask)
        expected = reference(module, *inputs[:-1], **extras(case, inputs, mask))
        require_same(call(module, case, inputs, mask), expected, "the result", 1e-10)


def has_the_declared_shape(case: Case) -> None:
    """The result has the declared kind and shape, and the dtype of its operands."""
    masks = {"no mask": None, "a causal mask": causal(), "a padding mask": padding()}
    for name, mask in masks.items():
        result = call(build(case), case, draw(case.signature, mask=mask), mask)
        expected = (BATCH, SIZES.heads, SIZES.tokens, features(case.signature.output.kind))
        shape = tuple(result.shape)
        require(shape == expected, f"under {name}, the shape is {shape}; expected {expected}")
        require(result.dtype == torch.float64, f"under {name}, float64 in, {result.dtype} out")


def has_the_gradients_of_finite_differences(case: Case) -> None:
    """The primitive's gradients equal finite differences in float64."""
    block, x = _Block(case), draw(case.signature)[-1].requires_grad_()

    def run(x: Tensor, *parameters: Tensor) -> Tensor:  # gradcheck changes them in place
        result: Tensor = block(x, is_causal=True)
        return result

    if run(x).requires_grad:
        torch.autograd.gradcheck(run, [x, *block.parameters()], fast_mode=True)


def trains_every_parameter(case: Case) -> None:
    """Every parameter has a gradient, and the class says whether it has parameters."""
    module, primitive = build(case), case.primitive
    _, gradients = backward(module, case, draw(case.signature))
    names = [name for name, _ in module.named_parameters()]
    for name in names:
        finding = f"the parameter {name} has none; expected one, or no parameter"
        require(gradients[name].any(), finding)
    finding = f"is_parametric is {primitive.is_parametric}; expected has_parameters = {bool(names)}"
    require(primitive.is_parametric == bool(names), f"{finding} in the class")


class _Block(nn.Module):
    """A case in place of attention, from tokens ``x`` to features of its results in both modes.

    ``visible``, shape (n,), marks the tokens that are no padding. The others are those of the next
    example of the batch, so what depends on padding depends on another example.
    """

    def __init__(self, case: Case, visible: Tensor | None = None) -> None:
        super().__init__()
        self.module, self.case, self.visible = build(case), case, visible

    def forward(self, x: Tensor, is_causal: bool = False) -> Tensor:
        mask = causal(x.shape[1]) if is_causal else None
        if self.visible is not None:
            mask = self.visible.expand(len(x), 1, 1, -1)
            x = torch.where(self.visible[:, None], x, x.roll(-1, dims=0))
        inputs = draw(self.case.signature, mask=mask, x=x)
        modes = (call(self.module.train(mode), self.case, inputs, mask) for mode in (True, False))
        result = torch.cat([*modes], dim=1)
        if self.case.signature.output.kind is Kind.SCORES and mask is not None:
            result = result.masked_fill(~mask, 0.0)
        rows = torch.where(result.isfinite(), result, 0.0).transpose(1, 2).flatten(2)
        generator = torch.Generator().manual_seed(12)
        out = rows @ torch.randn(rows.shape[2], x.shape[2], generator=generator, dtype=x.dtype)
        return out if self.visible is None else out * self.visible[:, None]


def keeps_examples_apart(case: Case) -> None:
    """The result for an example depends on no other example of its batch."""
    leak = _leak(_Block(case))
    require(not leak, leak)


def does_not_see_hidden_keys(case: Case) -> None:
    """Keys that a padding mask hides do not change the result."""
    visible = padding(PROBED[1])[0, 0, 0]
    for part, which in ((visible, "last"), (visible.flip(0), "first")):
        finding = f"padding of the {which} two tokens changes the result at others"
        require(not _leak(_Block(case, part)), f"{finding}; {_advice(case)}")


def is_as_causal_as_declared(case: Case) -> None:
    """A causal mask hides later tokens, unless ``is_causal_safe`` is false."""
    leak = _leak(_Block(case), is_causal=True)
    if case.primitive.is_causal_safe(case.params):
        finding = f"{leak}, or is_causal_safe=lambda params: False among the declarations"
        require(not leak, f"{finding}; {_advice(case)}")
    else:
        require(leak, "it is declared to see later tokens, and sees none")


def _leak(block: _Block, *, is_causal: bool = False) -> str:
    """Return in words what the result depends on and must not; nothing if there is no leak."""
    x = torch.randn(*PROBED, SIZES.dim, generator=torch.Generator().manual_seed(13))
    sizes = ModelSizes(SIZES.dim, SIZES.heads, 1, x.shape[1])
    try:
        probe(block, sizes, is_causal=is_causal, tokens=x)
    except Leak as leak:
        return str(leak)
    except Constant:  # scores may depend on positions only
        pass
    return ""


def _advice(case: Case) -> str:
    has_scores = any(port.kind.is_paired for port in case.signature.inputs)
    helper = "hide(scores, mask)" if has_scores else "drop_padding(tokens, mask)"
    change = "" if "mask" in case.primitive.extras else "give forward an argument mask=None, and "
    return f"to hide keys, {change}call {helper} of nas.genome.primitives.tensors"


def survives_a_row_that_sees_no_key(case: Case) -> None:
    """A query without visible keys causes no NaN, and a normaliser gives it zero weights."""
    for name, mask in (
        ("a mask that hides all keys from query 0", causal().tril(-1)),
        ("a mask that hides all keys from all queries", torch.zeros_like(causal())),
    ):
        inputs = draw(case.signature, mask=mask)
        result = _finite(case, inputs, mask, f"under {name}")
        if case.signature.role is Role.NORMALIZE:
            finding = f"under {name}, weights of hidden keys are not zero; {_advice(case)}"
            require(not result.masked_select(~mask).any(), finding)


def leaves_excluded_scores_excluded(case: Case) -> None:
    """Scores of -inf remain -inf, and a normaliser gives them the weight zero."""
    if all(port.kind is not Kind.SCORES for port in case.signature.inputs):
        return
    inputs = draw(case.signature)
    excluded = torch.zeros_like(causal())
    excluded[0, 2] = excluded[3, :4] = excluded[1] = True
    inputs[0] = inputs[0].masked_fill(excluded, -math.inf)
    for name, mask in (("no mask", None), ("a mask", causal().tril(-1))):
        results = _finite(case, inputs, mask, f"with scores of -inf and {name}")
        if case.signature.output.kind is Kind.SCORES:
            is_excluded = (results.masked_select(excluded) == -math.inf).all()
            require(is_excluded, f"with {name}, an excluded score comes back; expected -inf")
        elif "scores" not in case.primitive.unread(case.params):
            has_weight = results.masked_select(excluded).any()
            require(not has_weight, f"with {name}, an excluded score gets a weight; expected 0")


def _finite(case: Case, inputs: list[Tensor], mask: Tensor | None, name: str) -> Tensor:
    result, gradients = backward(build(case), case, inputs, mask)
    require(not result.isnan().any(), f"{name}, the result has NaN; expected numbers")
    _require_finite(gradients, name)
    return result


def _require_finite(gradients: dict[str, Tensor], name: str) -> None:
    wrong = [n for n, gradient in gradients.items() if not gradient.isfinite().all()]
    finding = f"{name}, a gradient of {', '.join(wrong)} has NaN or infinity"
    require(not wrong, f"{finding}; expected finite gradients")


def runs_in_16_bits(case: Case) -> None:
    """Under autocast to 16 bits, results differ from results in float64 by at most 3 %."""
    for dtype in (torch.bfloat16, torch.float16):
        inputs = [t.to(dtype) for t in draw(case.signature, mask=causal())]
        rounded = [t.double() for t in inputs]
        expected = call(build(case), case, rounded, causal()).detach()
        result, gradients = backward(build(case).float(), case, inputs, causal(), dtype)
        size = expected[torch.isfinite(expected)].abs().max().item()
        require_same(result, expected, f"the result in {dtype}", 0.03 * (1 + size))
        _require_finite(gradients, f"in {dtype}")


def creates_tensors_on_the_device_of_its_operands(case: Case) -> None:
    """The primitive creates tensors on the device of its operands."""
    module = build(case).to("meta")
    inputs = [t.to("meta") for t in draw(case.signature)]
    for mask in (None, causal().to("meta")):
        result = call(module, case, inputs, mask)
        require(result.is_meta, f"operands on meta, the result on {result.device}; expected meta")


def starts_from_the_seed(case: Case) -> None:
    """Modules of equal seeds and pickled modules compute the same."""
    first, second = (build(case, randomised=False) for _ in range(2))
    inputs = draw(case.signature, mask=causal())
    expected = call(first, case, inputs, causal())
    for other, what in ((second, "a module"), (pickle.loads(pickle.dumps(first)), "a copy")):  # noqa: S301
        finding = f"{what} differs; expected random numbers in __init__ only, and plain attributes"
        require(torch.equal(call(other, case, inputs, causal()), expected), finding)


def has_a_cost_rule_for_each_operation(case: Case) -> None:
    """Torch tags the primitive's operations as pointwise, or ``elementwise`` declares them."""
    module, inputs = build(case), draw(case.signature)
    operands = tuple(inputs[slot] for slot, _ in case.signature.arguments())
    if "x" in case.primitive.extras:
        module, operands = WithInput(module), (*operands, inputs[-1])
    count_calls(module, operands, case.primitive.elementwise)


def computes_a_part_of_a_sequence(case: Case) -> None:
    """The result at some tokens needs no other tokens, unless ``needs_all_tokens`` is true."""
    if case.primitive.needs_all_tokens:
        return
    mask = causal() if case.signature.is_paired else None
    inputs, module = draw(case.signature, mask=mask), build(case)
    whole = call(module, case, inputs, mask)
    for part in (slice(0, 1), slice(1, 4), slice(4, SIZES.tokens)):
        start = {"start": part.start} if case.primitive.is_positional else {}
        what = (
            f"the result for tokens {part.start} to {part.stop - 1} only (needs_all_tokens = True "
            "in the class allows it to need others)"
        )
        require_same(
            call(module, case, inputs, mask, part, **start), whole[:, :, part], what, 1e-10
        )


def is_exported_as_a_file(case: Case) -> None:
    """The primitive's source, inlined into a file, runs with torch only."""
    scope = {"__name__": "written"}
    exec(file_source(inlined([case.primitive.module])), scope)  # noqa: S102 - what is exported
    require(case.primitive.module.__name__ in scope, "the file lacks its class; expected it")


PROMISES: Final[tuple[Promise, ...]] = (
    has_the_declared_shape,
    has_the_gradients_of_finite_differences,
    trains_every_parameter,
    keeps_examples_apart,
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
