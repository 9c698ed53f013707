"""Promises of every primitive about keys that masks hide, and scores that filters exclude."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from nas.genome.primitives import Role
from nas.genome.primitives.base import Kind, Signature
from nas.testing.cases import SIZES, Case, Inputs, backward, build, call, causal, draw, padding
from nas.testing.promises import require


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
    return f"to hide keys, {change}call {helper} of nas.genome.primitives.masks"


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

    pairs = zip(inputs.operands, signature.inputs, strict=True)
    operands = [change(tensor, port.kind) for tensor, port in pairs]
    return Inputs(operands, change(inputs.x, Kind.TOKENS), inputs.mask)


def survives_a_row_that_sees_no_key(case: Case) -> None:
    """A query without visible keys causes no NaN, and a normaliser gives it zero weights."""
    n = SIZES.tokens
    masks = {
        "a mask that hides all keys from query 1": _without_row(1),
        "a mask that hides all keys from all queries": torch.zeros(n, n).bool(),
    }
    for name, mask in masks.items():
        result = _finite(case, draw(case.signature, mask=mask), f"under {name}")
        if case.signature.role is Role.NORMALIZE:
            require(
                not result.masked_select(~mask).any(),
                f"under {name}, weights of hidden keys are not zero; {_advice(case)}",
            )


def leaves_excluded_scores_excluded(case: Case) -> None:
    """Scores of -inf remain -inf, and a normaliser gives them the weight zero."""
    if all(port.kind is not Kind.SCORES for port in case.signature.inputs):
        return
    inputs = draw(case.signature)
    excluded = torch.zeros(SIZES.tokens, SIZES.tokens, dtype=torch.bool)
    excluded[0, 2] = excluded[3, :4] = excluded[1] = True
    inputs.operands[0] = inputs.operands[0].masked_fill(excluded, -math.inf)
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
    mask = torch.ones(SIZES.tokens, SIZES.tokens, dtype=torch.bool)
    mask[row] = False
    return mask


def _finite(case: Case, inputs: Inputs, name: str) -> Tensor:
    """Return the result; raise AssertionError if the result or a gradient has NaN."""
    result, gradients = backward(build(case), case, inputs)
    require(not result.isnan().any(), f"{name}, the result has NaN; expected numbers")
    require_finite(gradients, name)
    return result


def require_finite(gradients: dict[str, Tensor], name: str) -> None:
    """Raise AssertionError, which begins with ``name``, if a gradient is not finite."""
    wrong = [n for n, gradient in gradients.items() if not gradient.isfinite().all()]
    finding = f"{name}, a gradient of {', '.join(wrong)} has NaN or infinity"
    require(not wrong, f"{finding}; expected finite gradients")
