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
from nas.genome.primitives import Role, get
from nas.genome.primitives.base import Kind, Signature
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
from nas.testing.promises import Promise, keep, require, require_same


def check_primitive(name: str, reference: Callable[..., Tensor] | None = None) -> None:
    """Check a primitive against the promises of its family, for all parameters and signatures.

    Args:
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


class _Called(nn.Module):
    """A call of a case as a module whose inputs are the tensors of ``Inputs``."""

    def __init__(self, case: Case, inputs: Inputs) -> None:
        super().__init__()
        self.module, self.case, self.mask = build(case), case, inputs.mask

    def forward(self, *tensors: Tensor) -> Tensor:
        return call(self.module, self.case, Inputs([*tensors], self.mask))


def equals_its_reference(case: Case, reference: Callable[..., Tensor]) -> None:
    """The primitive's result equals the result of its reference."""
    for mask in (None, causal()):
        module, inputs = build(case), draw(case.signature, mask=mask)
        expected = reference(module, *inputs.tensors[:-1], **extras(case, inputs))
        require_same(call(module, case, inputs), expected, "the result", 1e-10)


def has_the_declared_shape(case: Case) -> None:
    """The result has the declared kind and shape, and the dtype of its operands."""
    masks = {"no mask": None, "a causal mask": causal(), "a padding mask": padding()}
    for name, mask in masks.items():
        result = call(build(case), case, draw(case.signature, mask=mask))
        expected = (BATCH, SIZES.heads, SIZES.tokens, features(case.signature.output.kind))
        shape = tuple(result.shape)
        require(shape == expected, f"under {name}, the shape is {shape}; expected {expected}")
        require(result.dtype == torch.float64, f"under {name}, float64 in, {result.dtype} out")


def has_the_gradients_of_finite_differences(case: Case) -> None:
    """The primitive's gradients equal finite differences in float64."""
    inputs = draw(case.signature, mask=causal())
    called, count = _Called(case, inputs), len(inputs.tensors)

    def run(*tensors: Tensor) -> Tensor:  # gradcheck changes the parameters in place
        result: Tensor = called(*tensors[:count])
        return torch.where(torch.isfinite(result), result, 0.0)

    leaves = [*(t.requires_grad_() for t in inputs.tensors), *called.parameters()]
    if run(*leaves).requires_grad:
        torch.autograd.gradcheck(run, leaves, fast_mode=True)


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


def does_not_see_hidden_keys(case: Case) -> None:
    """Keys that a padding mask hides do not change the result."""
    for mask, which in ((padding(), "last"), (padding().flip(-1), "first")):
        gap, query = _influence(case, mask, mask[0, 0, 0], is_padding=True)
        require(
            gap <= 1e-12,
            f"a padding mask that hides the {which} two of {SIZES.tokens} tokens is ignored: a "
            f"hidden key changes the result at token {query} by {gap:.2g}; {_advice(case)}",
        )


def is_as_causal_as_declared(case: Case) -> None:
    """A causal mask hides later tokens, unless ``is_causal_safe`` is false."""
    gap, query = _influence(case, causal(), torch.arange(SIZES.tokens) < 5)
    if case.primitive.is_causal_safe(case.params):
        require(
            gap <= 1e-12,
            f"under a causal mask, a later token changes the result at token {query} by {gap:.2g}; "
            "expected no effect, or is_causal_safe=lambda params: False among the declarations; "
            f"{_advice(case)}",
        )
    else:
        require(gap > 1e-12, "it is declared to see later tokens, and sees none")


def _advice(case: Case) -> str:
    has_scores = any(port.kind.is_paired for port in case.signature.inputs)
    helper = "hide(scores, mask)" if has_scores else "drop_padding(tokens, mask)"
    change = "" if "mask" in case.primitive.extras else "give forward an argument mask=None, and "
    return f"to hide keys, {change}call {helper} of nas.genome.primitives.tensors"


def _influence(
    case: Case, mask: Tensor, kept: Tensor, *, is_padding: bool = False
) -> tuple[float, int]:
    """Return the largest change of results at ``kept`` tokens when all other tokens change.

    Scores that the mask hides are ignored. The second number is the index of the token or query
    with this change.
    """
    inputs, module = draw(case.signature, mask=mask), build(case)
    results = [inputs, _changed_at(inputs, case.signature, ~kept, is_padding)]
    before, after = (call(module, case, each)[:, :, kept] for each in results)
    if case.signature.output.kind is Kind.SCORES:
        visible = mask.expand(*mask.shape[:-2], *kept.shape, *kept.shape)[..., kept, :]
        before, after = (torch.where(visible, t, 0.0) for t in (before, after))
    gap = torch.where(before == after, 0.0, before - after).abs()  # two infinities are equal
    by_token = gap.nan_to_num(math.inf).amax(dim=(0, 1, 3))
    return by_token.max().item(), int(kept.nonzero()[by_token.argmax()])


def _changed_at(inputs: Inputs, signature: Signature, tokens: Tensor, is_padding: bool) -> Inputs:
    """Return the inputs with other values at marked tokens.

    An attention score changes if its query or its key is marked, an attention weight only if its
    query is marked. The forget gates of padding are always 1.
    """

    def change(tensor: Tensor, kind: Kind) -> Tensor:
        where = tokens[:, None] | tokens[None, :] if kind is Kind.SCORES else tokens[:, None]
        if kind.is_gates and is_padding:
            return tensor
        if kind.is_gates:  # the gate of a token is a part of all later sums
            changed = torch.where(where, torch.rand_like(tensor), torch.zeros_like(tensor))
            return tensor - changed.cumsum(dim=2)
        return torch.where(where, tensor + torch.randn_like(tensor), tensor)

    kinds = [*(port.kind for port in signature.inputs), Kind.TOKENS]
    return Inputs([*map(change, inputs.tensors, kinds)], inputs.mask)


def survives_a_row_that_sees_no_key(case: Case) -> None:
    """A query without visible keys causes no NaN, and a normaliser gives it zero weights."""
    for name, mask in (
        ("a mask that hides all keys from query 1", _without_row(1)),
        ("a mask that hides all keys from all queries", torch.zeros_like(causal())),
    ):
        result = _finite(case, draw(case.signature, mask=mask), f"under {name}")
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
    inputs.tensors[0] = inputs.tensors[0].masked_fill(excluded, -math.inf)
    for name, inputs.mask in (("no mask", None), ("a mask", _without_row(2))):
        results = _finite(case, inputs, f"with scores of -inf and {name}")
        if case.signature.output.kind is Kind.SCORES:
            is_excluded = (results.masked_select(excluded) == -math.inf).all()
            require(is_excluded, f"with {name}, an excluded score comes back; expected -inf")
        elif "scores" not in case.primitive.unread(case.params):
            has_weight = results.masked_select(excluded).any()
            require(not has_weight, f"with {name}, an excluded score gets a weight; expected 0")


def _without_row(row: int) -> Tensor:
    """Return a mask (n, n) that hides all keys from the query of index ``row``."""
    mask = torch.ones_like(causal())
    mask[row] = False
    return mask


def _finite(case: Case, inputs: Inputs, name: str) -> Tensor:
    """Return the result; raise AssertionError if the result or a gradient has NaN."""
    result, gradients = backward(build(case), case, inputs)
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
        drawn = draw(case.signature, mask=causal())
        inputs = Inputs([t.to(dtype) for t in drawn.tensors], drawn.mask)
        rounded = Inputs([t.double() for t in inputs.tensors], drawn.mask)
        expected = call(build(case), case, rounded).detach()
        result, gradients = backward(build(case).float(), case, inputs, dtype)
        size = expected[torch.isfinite(expected)].abs().max().item()
        require_same(result, expected, f"the result in {dtype}", 0.03 * (1 + size))
        _require_finite(gradients, f"in {dtype}")


def creates_tensors_on_the_device_of_its_operands(case: Case) -> None:
    """The primitive creates tensors on the device of its operands."""
    module = build(case).to("meta")
    tensors = [t.to("meta") for t in draw(case.signature).tensors]
    for mask in (None, causal().to("meta")):
        result = call(module, case, Inputs(tensors, mask))
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
    count_calls(_Called(case, inputs), tuple(inputs.tensors), case.primitive.elementwise)


def computes_a_part_of_a_sequence(case: Case) -> None:
    """The result at some tokens needs no other tokens, unless ``needs_all_tokens`` is true."""
    if case.primitive.needs_all_tokens:
        return
    mask = causal() if case.signature.is_paired else None
    inputs, module = draw(case.signature, mask=mask), build(case)
    whole = call(module, case, inputs)
    for part in (slice(0, 1), slice(1, 4), slice(4, SIZES.tokens)):
        start = {"start": part.start} if case.primitive.is_positional else {}
        what = (
            f"the result for tokens {part.start} to {part.stop - 1} only (needs_all_tokens = True "
            "in the class allows it to need others)"
        )
        require_same(call(module, case, inputs, part, **start), whole[:, :, part], what, 1e-10)


def is_exported_as_a_file(case: Case) -> None:
    """The primitive's source, inlined into a file, runs with torch only."""
    scope = {"__name__": "written"}
    exec(file_source(inlined([case.primitive.module])), scope)  # noqa: S102 - what is exported
    require(case.primitive.module.__name__ in scope, "the file lacks its class; expected it")


PROMISES: Final[tuple[Promise, ...]] = (
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
