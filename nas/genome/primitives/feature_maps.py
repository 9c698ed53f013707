"""Maps of each token's features that linear attention and the delta rule apply to queries and keys.

Unit length, and two maps to positive features: dot products of positive features are positive, so
that the normaliser ``ratio`` divides by sums that are not zero.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from nas.genome.primitives.base import Role, primitive
from nas.genome.primitives.products import unit_length
from nas.genome.primitives.shapes import Tokens
from nas.genome.primitives.signs import common_sign, non_negative


@primitive(
    "l2_norm",
    "tokens: tokens[h,w] -> tokens[h,w]",
    role=Role.TRANSFORM,
    notation="{tokens}/|{tokens}|",
    source="Yang et al. 2024 (DeltaNet, arXiv 2406.06484)",
    sign=common_sign,
)
class L2Norm(nn.Module):
    """Each token's features of each head, divided by their Euclidean length.

    out = x / max(|x|, 1e-3), which has unit length unless x is nearly zero
    """

    def forward(self, tokens: Tokens) -> Tokens:
        return unit_length(tokens)


@primitive(
    "elu_plus_one",
    "tokens: tokens[h,w] -> tokens[h,w]",
    role=Role.TRANSFORM,
    notation="(elu({tokens}) + 1)",
    source="Katharopoulos et al. 2020 (Transformers are RNNs)",
    sign=non_negative,
    is_featurewise=True,
)
class EluPlusOne(nn.Module):
    """Positive features: x + 1 for positive x, and exp(x) for all other x."""

    def forward(self, tokens: Tokens) -> Tokens:
        # Not elu(x) + 1, which rounds small results to multiples of 2^-8 in bfloat16.
        return F.relu(tokens) + tokens.clamp(max=0.0).exp()


@primitive(
    "feature_softmax",
    "tokens: tokens[h,w] -> tokens[h,w]",
    role=Role.TRANSFORM,
    notation="softmax_w({tokens})",
    source="Shen et al. 2021 (Efficient Attention, arXiv 1812.01243), of queries",
    sign=non_negative,
)
class FeatureSoftmax(nn.Module):
    """Softmax over the features of each token and head; the features are positive and sum to 1."""

    def forward(self, tokens: Tokens) -> Tokens:
        return torch.softmax(tokens, dim=-1)
