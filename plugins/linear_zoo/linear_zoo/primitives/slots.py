"""Slots: a state of few tokens, into which each token is written by a softmax or by gates.

The readout of attention with bounded memory is two gated sums, of which the first has gates on the
features of its values.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from nas.genome.primitives.base import Role, primitive
from nas.genome.primitives.domains import Choice, Integer
from nas.genome.primitives.gated import log_decay
from nas.genome.primitives.gates import summed
from nas.genome.primitives.tensors import (
    Gates,
    KeyGates,
    Mask,
    QueryGates,
    Scores,
    Sums,
    Tokens,
    Values,
    drop_padding,
)


def visibility(tokens: Tokens, mask: Mask) -> Tokens:
    """Return ones of the tokens' shape, with zeros for padding, in float32 at least."""
    exact = torch.promote_types(tokens.dtype, torch.float32)
    return drop_padding(torch.ones_like(tokens, dtype=exact), mask)


def running_logsumexp(tokens: Tokens, visible: Tokens) -> Tokens:
    """Return z_t = log(exp(s_0) + ... + exp(s_t)) of each feature s; padding is excluded."""
    exact = tokens.to(visible.dtype)
    # Finite, because the gradient of an excluded -inf would be NaN.
    low = exact.detach().amin(dim=2, keepdim=True) - 1000.0
    return torch.logcumsumexp(torch.where(visible > 0, exact, low), dim=2)


@primitive(
    "slot_gate",
    "tokens: tokens[h,w] -> feature_gates[h,w]",
    role=Role.FORGET,
    notation="f_{form}({tokens})",
    source="sigmoid: Zhang et al. 2024 (GSA, arXiv 2409.07146); double_exponential: "
    "Peng et al. 2024 (arXiv 2404.05892); share: Qin et al. 2024 (LightNet, arXiv "
    "2405.21022), and Peng et al. 2021 (ABC, arXiv 2110.02488)",
    parameters={
        "form": Choice(default="sigmoid", values=("sigmoid", "double_exponential", "share")),
        "root": Integer(default=1, low=1, high=64),
    },
    unread=lambda params: () if params["form"] == "sigmoid" else ("root",),
    state=lambda sizes, params: sizes.heads * sizes.width * (1 + (params["form"] == "share")),
    is_featurewise=lambda params: True,
)
class SlotGate(nn.Module):
    """Forget gates f of each feature s of the tokens.

    sigmoid: f_t = sigmoid(s_t)^(1 / root). double_exponential: f_t = exp(-exp(s_t)).
    share: f_t = exp(z_{t-1} - z_t) with z_t = log(exp(s_0) + ... + exp(s_t)), the share of the
    softmax over all tokens so far that earlier tokens keep; f_0 = 1.
    """

    needs_all_tokens = True
    reads_hidden_tokens = True
    has_parameters = False

    def __init__(self, *, form: str = "sigmoid", root: int = 1) -> None:
        super().__init__()
        self.form = form
        self.root = root

    def forward(self, tokens: Tokens, mask: Mask = None) -> Gates:
        if self.form != "share":
            return summed(self.logarithms(tokens), mask)
        visible = visibility(tokens, mask)
        total = running_logsumexp(tokens, visible)
        last = total.detach().amax(dim=2, keepdim=True)
        first = torch.where(visible > 0, total, last).amin(dim=2, keepdim=True)
        return (first - total).clamp(max=0.0)

    def logarithms(self, tokens: Tokens) -> Gates:
        """Return log f."""
        exact = tokens.to(torch.promote_types(tokens.dtype, torch.float32))
        return F.logsigmoid(exact) / self.root if self.form == "sigmoid" else -exact.exp()


@primitive(
    "prefix_softmax",
    "tokens: tokens[h,w] -> tokens[h,w]",
    role=Role.POSITION,
    notation="softmax_≤t({tokens})",
    source="Peng et al. 2021 (ABC, arXiv 2110.02488); Qin et al. 2024 (LightNet, arXiv 2405.21022)",
    state=lambda sizes, params: sizes.heads * sizes.width,
)
class PrefixSoftmax(nn.Module):
    """Each feature's share in the softmax over all tokens so far.

    out_t = exp(s_t) / (exp(s_0) + ... + exp(s_t)). Together with ``slot_gate`` of form share,
    gated sums of tokens with these factors are softmax means over the tokens so far.
    """

    needs_all_tokens = True
    has_parameters = False

    def forward(self, tokens: Tokens, mask: Mask = None) -> Tokens:
        visible = visibility(tokens, mask)
        total = running_logsumexp(tokens, visible)
        share = torch.where(visible > 0, (tokens - total).clamp(max=0.0), 0.0).exp()
        return (share * visible).to(tokens.dtype)


@primitive(
    "slot_sum",
    "weights: weights[h], values: tokens[h,w], gates: feature_gates[h,w] -> tokens[h,w]",
    role=Role.AGGREGATE,
    notation="{weights}·Π{gates}·{values}",
    source="Zhang et al. 2024 (GSA, arXiv 2409.07146), the readout of the keys' slots",
)
class SlotSum(nn.Module):
    """Weighted sums of values whose features forget.

    out_iu = sum_j weights_ij exp(-|c_iu - c_ju|) values_ju, with the sums c of the logarithms of
    the gates. With products of queries and keys as weights, this is the product of a query with a
    matrix of slots: feature u of the values says how much token j writes into slot u.
    """

    has_parameters = False

    def forward(
        self, weights: Scores, values: Values, query_gates: QueryGates, key_gates: KeyGates
    ) -> Sums:
        decay = torch.exp(log_decay(query_gates[:, :, :, None], key_gates[:, :, None]))
        each = weights[..., None] * decay.to(weights.dtype)
        return torch.einsum("bhqkw,bhkw->bhqw", each, values)
