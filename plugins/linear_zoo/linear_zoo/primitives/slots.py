"""Slots: a state of few tokens, into which each token is written by a softmax or by gates.

The readout of attention with bounded memory is two gated sums, of which the first has gates on the
features of its values.
"""

from __future__ import annotations

import torch
from torch import nn

from nas.genome.primitives.base import Role, primitive
from nas.genome.primitives.gated import log_decay
from nas.genome.primitives.gates import running_logsumexp, visibility
from nas.genome.primitives.shapes import KeyGates, Mask, QueryGates, Scores, Sums, Tokens, Values


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

    out_t = exp(s_t) / (exp(s_0) + ... + exp(s_t)). Together with ``token_gate`` of form share,
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
