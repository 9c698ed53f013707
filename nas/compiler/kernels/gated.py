"""Gated linear attention and the delta rule in chunks: time and memory linear in the sequence.

A sequence is cut into chunks of ``CHUNK`` tokens. Pairs of tokens are computed only within a chunk.
Earlier chunks enter through a state, a matrix that maps keys to values. Gates are sums c of
logarithms (nas.genome.primitives.gates), and only exp(c_i - c_j) with i >= j is computed, which is
at most 1: no chunk overflows, however small its gates are.

Source: Yang et al. 2024 (arXiv 2312.06635), section 4; for the delta rule arXiv 2406.06484, section
3.2, with gates arXiv 2412.06464, section 3.3.
"""

from __future__ import annotations

from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nas.compiler.kernels import faster
from nas.compiler.kernels.attention import sum_of_pairs, visible_tokens
from nas.genome.primitives.gated import Delta, decayed_products, log_decay, unrolled, without_erased
from nas.genome.primitives.tensors import Gates, Key, Mask, Query, Sums, Tokens, Values

CHUNK: Final = 64
PAIRED_TOKENS: Final = 8  # tokens of a chunk whose pairs are computed feature by feature


def gated_linear_attention(
    query: Query,
    key: Key,
    values: Values,
    mask: Mask,
    scale: float = 1.0,
    is_causal: bool = False,
    *,
    gates: Gates,
    divide: bool = True,
) -> Sums:
    """Return for each query i the sum of (scale q_i G_ij·k_j) v_j / n_i over the visible keys j.

    G_ij is the product of the gates between tokens i and j, for each feature. n_i is the number of
    visible keys, or 1 without ``divide``. ``is_causal`` hides later keys in addition to ``mask``.
    """
    query, count = query * scale, key.shape[2]
    if is_in_chunks(count, gates.shape[-1]) and (mask is None or mask.shape[-2] == 1):
        values, visible = visible_tokens(values, mask, is_causal)
        out = gated_sums(query, key, values, gates)
        if not is_causal:
            back = (x.flip(2) for x in (query, key, values, gates[:, :, -1:] - gates))
            # Both directions contain each token's product with itself.
            alone = (query * key).sum(dim=-1, keepdim=True) * values
            out = out + gated_sums(*back).flip(2) - alone
        return (out / visible if divide else out).to(values.dtype)
    weights = decayed_products(query, key, gates, gates)
    return sum_of_pairs(weights, values, mask, is_causal, divide)


def is_in_chunks(tokens: int, gates: int) -> bool:
    """Return whether attention with so many gates of a head is computed in chunks.

    With gates of features, each pair has an exponential for each feature. A traced graph, which is
    valid for any number of tokens, computes all pairs.
    """
    most = CHUNK * (2 - gates) if gates < 2 else PAIRED_TOKENS
    return tokens > most and not torch.compiler.is_compiling()


def gated_sums(query: Tokens, key: Tokens, values: Tokens, gates: Gates) -> Tokens:
    """Return sum_{j <= i} (q_i G_ij·k_j) v_j for each token i, in float32 or float64."""
    length = key.shape[2]
    query, key, values, gates = (in_chunks(x, gates.dtype) for x in (query, key, values, gates))
    within = past_products(query, key, gates) @ values
    if key.shape[2] == 1:
        return within.flatten(2, 3)[:, :, :length]
    start, end = edges(gates)
    sums = (key * torch.exp(end - gates)).mT @ values
    # The share of the sums of chunk y that remains at the start of chunk x.
    kept = start - end.transpose(2, 3)
    later = torch.ones(kept.shape[2:4], dtype=torch.bool, device=kept.device).tril(-1)
    kept = kept.masked_fill(~later[:, :, None], -torch.inf).exp()
    if kept.shape[-1] > 1:
        states = torch.einsum("bhxyg,bhygv->bhxgv", kept, sums)
    else:
        states = (kept[..., 0] @ sums.flatten(3)).unflatten(3, sums.shape[3:])
    return (within + (query * torch.exp(gates - start)) @ states).flatten(2, 3)[:, :, :length]


def in_chunks(x: Tokens, dtype: torch.dtype) -> Float[Tensor, "b h m c w"]:
    """Return the tokens in chunks. The last token is repeated to fill the last chunk."""
    short = -x.shape[2] % CHUNK
    if short:
        x = torch.cat((x, x[:, :, -1:].expand(-1, -1, short, -1)), dim=2)
    return x.to(dtype).unflatten(2, (-1, CHUNK))


def edges(
    gates: Float[Tensor, "b h m c g"],
) -> tuple[Float[Tensor, "b h m 1 g"], Float[Tensor, "b h m 1 g"]]:
    """Return the sums of each chunk's gates before its first token, and at its last token."""
    end = gates[:, :, :, -1:]
    return F.pad(end[:, :, :-1], (0, 0, 0, 0, 1, 0)), end


def past_products(
    query: Float[Tensor, "... n w"],
    key: Float[Tensor, "... n w"],
    gates: Float[Tensor, "... n g"] | None,
) -> Float[Tensor, "... n n"]:
    """Return q_i G_ij·k_j for j <= i, and zeros for later j.

    With gates of features, pairs of the first and the second half are products of queries decayed
    from the middle and keys decayed to the middle. The halves are computed in the same way.
    """
    length = query.shape[-2]
    if gates is None:
        return (query @ key.mT).tril()
    if gates.shape[-1] == 1:
        later = torch.ones(length, length, dtype=torch.bool, device=gates.device).triu(1)
        # tril, since an infinite product of later keys times zero is NaN
        return (query @ key.mT).tril() * (gates - gates.mT).masked_fill(later, -torch.inf).exp()
    if length <= PAIRED_TOKENS:
        decay = torch.exp(log_decay(gates[..., :, None, :], gates[..., None, :, :]))
        return torch.einsum("...ijw,...jw->...ij", query[..., :, None, :] * decay, key).tril()
    half = length // 2
    middle = gates[..., half - 1 : half, :]
    rows = query[..., half:, :] * torch.exp(gates[..., half:, :] - middle)
    columns = key[..., :half, :] * torch.exp(middle - gates[..., :half, :])
    cross = rows @ columns.mT
    halves = past_products(*(x.unflatten(-2, (2, half)) for x in (query, key, gates)))
    first = torch.cat((halves[..., 0, :, :], torch.zeros_like(cross)), dim=-1)
    return torch.cat((first, torch.cat((cross, halves[..., 1, :, :]), dim=-1)), dim=-2)


def solve_in_chunks(erase: Tokens, keys: Tokens, values: Tokens, gates: Gates | None) -> Tokens:
    """Return the result of ``without_erased``, for long sequences chunk by chunk."""
    length = keys.shape[2]
    if not is_in_chunks(length, 0 if gates is None else gates.shape[-1]):
        return without_erased(erase, keys, values, gates)
    erase, keys, values = (in_chunks(x, values.dtype) for x in (erase, keys, values))
    kept: Tensor | None = None
    reading, written = erase, keys  # decayed from the start of the chunk, and to its end
    if gates is not None:
        gates = in_chunks(gates, values.dtype)
        start, end = edges(gates)
        reading, written = erase * torch.exp(gates - start), keys * torch.exp(end - gates)
        kept = torch.exp(end - start).mT
    both = torch.cat((values, reading), dim=-1)
    solved = unrolled(past_products(erase, keys, gates), both)
    fresh, corrections = solved.split((values.shape[-1], keys.shape[-1]), dim=-1)
    state = values.new_zeros(*keys.shape[:2], keys.shape[-1], values.shape[-1])
    out = []
    for chunk in range(keys.shape[2]):
        out.append(fresh[:, :, chunk] - corrections[:, :, chunk] @ state)
        if chunk + 1 < keys.shape[2]:
            earlier = state if kept is None else kept[:, :, chunk] * state
            state = earlier + written[:, :, chunk].mT @ out[-1]
    return torch.cat(out, dim=2)[:, :, :length]


@faster
class FastDelta(Delta):
    """The delta rule in chunks, for long sequences."""

    is_traceable = True

    def solve(self, erase: Tokens, keys: Tokens, values: Tokens, gates: Gates | None) -> Tokens:
        return solve_in_chunks(erase, keys, values, gates)
