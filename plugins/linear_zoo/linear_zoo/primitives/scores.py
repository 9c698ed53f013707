"""Scores with further operands, and changes of scores and weights."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nas.genome.primitives.base import Role, primitive
from nas.genome.primitives.domains import Integer
from nas.genome.primitives.gated import unrolled
from nas.genome.primitives.normalisers import keep_largest
from nas.genome.primitives.tensors import (
    Key,
    KeyGates,
    Mask,
    Query,
    QueryGates,
    Scores,
    Tokens,
    drop_padding,
    hide,
)


@primitive(
    "bonus_product",
    "query: tokens[h,w], key: tokens[h,w], gates: feature_gates[h,w], "
    "delayed: feature_gates[h,w] -> scores[h]",
    role=Role.SCORE,
    notation="{query}·Π'{gates}·{key}ᵀ/√d",
    source="Peng et al. 2024 (Eagle and Finch, arXiv 2404.05892)",
)
class BonusProduct(nn.Module):
    """Scaled dot products with the gates strictly between query and key, and a bonus for i = j.

    scores_ij = sum_u q_iu k_ju D_iju / sqrt(r), with D the product of the gates of all tokens
    between i and j, without those of i and j, and for i = j a learned bonus of each feature,
    initially 1. ``delayed``: the gates of the previous token (``delay_gates``).
    """

    def __init__(self, heads: int, width: int, rank: int) -> None:
        super().__init__()
        self.bonus = nn.Parameter(torch.ones(heads, 1, 1, width))
        self.scale = rank**-0.5

    def forward(
        self,
        query: Query,
        key: Key,
        query_gates: QueryGates,
        key_gates: KeyGates,
        query_delayed: QueryGates,
        key_delayed: KeyGates,
        start: int | Tensor = 0,
    ) -> Scores:
        back = query_delayed[:, :, :, None] - key_gates[:, :, None]
        ahead = key_delayed[:, :, None] - query_gates[:, :, :, None]
        place = torch.arange(query.shape[2], device=query.device)[:, None] + start
        distance = (place - torch.arange(key.shape[2], device=query.device))[..., None]
        # Each logarithm is zero or less where it is used, so that no exponential overflows.
        decay = torch.where(distance > 0, back, ahead).masked_fill(distance == 0, 0.0).exp()
        decay = torch.where(distance == 0, self.bonus.to(decay.dtype), decay)
        rows = (query * self.scale)[:, :, :, None] * decay.to(query.dtype)
        return torch.einsum("bhqkw,bhkw->bhqk", rows, key)


@primitive(
    "path_product",
    "query: tokens[h,w], key: tokens[h,w], directions: tokens[h,w] -> scores[h]",
    role=Role.SCORE,
    notation="{query}·ΠH({directions})·{key}ᵀ/√d",
    source="Yang et al. 2025 (PaTH, arXiv 2505.16381)",
)
class PathProduct(nn.Module):
    """Scaled dot products through the Householder maps of the tokens after the key.

    scores_ij = q_i H_i H_{i-1} ... H_{j+1} k_j / sqrt(w), H_t = 1 - b_t d_t^T d_t, with directions
    d of unit length and b_t = 2 sigmoid(w_h·x_t + c_h). Later keys j > i, which a causal mask
    hides, are scored without maps.
    """

    needs_all_tokens = True

    def __init__(self, dim: int, heads: int, width: int) -> None:
        super().__init__()
        self.strength = nn.Linear(dim, heads)
        self.scale = width**-0.5

    def forward(
        self,
        query: Query,
        key: Key,
        directions: Tokens,
        x: Float[Tensor, "b n d"],
        mask: Mask = None,
    ) -> Scores:
        exact = torch.promote_types(query.dtype, torch.float32)
        queries, keys = (query * self.scale).to(exact), key.to(exact)
        unit = F.normalize(directions.to(exact), dim=-1)
        strength = 2.0 * torch.sigmoid(self.strength(x)).mT[..., None].to(exact)
        scaled = drop_padding(strength, mask) * unit
        # What the maps between j and i remove from key j, as a sum over the directions.
        removed = unrolled(scaled @ unit.mT, (scaled @ keys.mT).to(exact).tril(-1))
        through = (queries @ unit.mT).tril() @ removed
        return (queries @ keys.mT - through.tril()).to(query.dtype)


@primitive(
    "block_filter",
    "scores: scores[h] -> scores[h]",
    role=Role.ADJUST,
    notation="top_{k}_blocks_of_{block}({scores})",
    source="Lu et al. 2025 (MoBA, arXiv 2502.13189)",
    parameters={
        "block": Integer(default=16, low=1, high=65536),
        "k": Integer(default=2, low=1, high=65536),
    },
    plain=lambda params, sizes: (
        None if (params["k"] + 1) * params["block"] >= sizes.tokens else params
    ),
)
class BlockFilter(nn.Module):
    """The scores of k blocks of keys and of the query's own block; all others become -inf.

    Block m contains the keys m B to (m + 1) B - 1. For each query, the k blocks with the largest
    mean of visible scores are kept, besides the block with the query's position. If scores are dot
    products, this mean is the score of the block's mean key. Under a causal mask, the other visible
    blocks end before the query's own block. Blocks with equal means are all kept.

    Args:
        block: the number B of keys in a block.
        k: number of blocks besides the query's own; MoBA counts the own block too.
    """

    is_filter = True
    needs_all_keys = True

    def __init__(self, *, block: int = 16, k: int = 2) -> None:
        super().__init__()
        self.block = block
        self.k = k

    def forward(self, scores: Scores, mask: Mask = None, start: int | Tensor = 0) -> Scores:
        queries, keys = scores.shape[2:]
        block_of = torch.arange(keys, device=scores.device) // self.block
        exact = hide(scores.detach(), mask).to(torch.promote_types(scores.dtype, torch.float32))
        hidden = exact == -torch.inf
        # Two more than needed, which stay empty: an exported graph may not depend on one block.
        sums = exact.new_zeros(*scores.shape[:3], keys // self.block + 2)
        count = sums.index_add(-1, block_of, (~hidden).to(exact.dtype))
        means = sums.index_add(-1, block_of, exact.masked_fill(hidden, 0.0)) / count.clamp(min=1)
        place = torch.arange(queries, device=scores.device) + start
        own = (place // self.block)[:, None] == torch.arange(sums.shape[-1], device=scores.device)
        means = means.masked_fill(own | (count == 0), -torch.inf)
        kept = own | (keep_largest(means, None, self.k) > -torch.inf)
        return scores.masked_fill(~kept.index_select(-1, block_of), -torch.inf)


@primitive(
    "level_scale",
    "scores: scores[h] -> scores[h]",
    role=Role.ADJUST,
    notation="λ_level(x)·{scores}",
    source="Log-Linear Attention 2025 (arXiv 2506.04761)",
    parameters={"levels": Integer(default=16, low=1, high=24)},
)
class LevelScale(nn.Module):
    """Scores times a factor of the query for each level of keys; excluded keys stay excluded.

    out_ij = l_i,level(i,j) scores_ij, l_i = softplus(a * (W_h x_i)). The level of a key is the
    number of bits of i xor j, so that level m holds 2^(m - 1) keys before the query; the last level
    holds all further keys. a: one number for each head and level, initially 1.
    """

    def __init__(self, dim: int, heads: int, *, levels: int = 16) -> None:
        super().__init__()
        self.level = nn.Linear(dim, heads * levels, bias=False)
        self.weight = nn.Parameter(torch.ones(heads, levels))

    def forward(self, scores: Scores, x: Float[Tensor, "b q d"], start: int | Tensor = 0) -> Scores:
        heads, levels = self.weight.shape
        raw = self.level(x).unflatten(-1, (heads, levels)) * self.weight.to(x.dtype)
        factors = F.softplus(raw).transpose(1, 2)
        place = torch.arange(scores.shape[2], device=scores.device)[:, None] + start
        apart = place ^ torch.arange(scores.shape[3], device=scores.device)
        bounds = 2 ** torch.arange(levels - 1, device=scores.device)
        level = (apart[..., None] >= bounds).sum(dim=-1)
        scale = factors.gather(-1, level.expand(scores.shape)).to(scores.dtype)
        excluded = scores == -torch.inf
        # Zero before the product: the factor's gradient would be 0 * inf, which is NaN.
        scaled = scores.masked_fill(excluded, 0.0) * scale
        return scaled.masked_fill(excluded, -torch.inf)


@primitive(
    "local_linear",
    "scores: scores[h], weights: weights[h] -> weights[h]",
    role=Role.ADJUST,
    notation="{weights} ⊙ (1 + mean({scores}) - {scores})",
    source="Parallax 2026 (arXiv 2605.29157), algorithm 1",
)
class LocalLinear(nn.Module):
    """Weights with a first-order correction by further scores.

    out_ij = w_ij (1 + sum_k w_ik s_ik - s_ij), with weights w and scores s. The sum of a row does
    not change if it is 1. Keys that the scores exclude get zero.
    """

    def forward(self, scores: Scores, weights: Scores) -> Scores:
        excluded = scores == -torch.inf
        finite = scores.masked_fill(excluded, 0.0)
        kept = weights.masked_fill(excluded, 0.0)
        mean = (kept * finite).sum(dim=-1, keepdim=True)
        return kept * (1.0 + mean - finite)
