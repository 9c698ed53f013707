"""A1 = SiLU(conv_4(K)[init=identity]); (RMS((ReLU(SiLU(conv_4(Q)[init=identity])/|SiLU(conv_4(Q)[init=identity])|)·ReLU(A1/|A1|)ᵀ)/√d/n[divide=no]·delta(A1, SiLU(conv_4(V)[init=identity]))))·W_O   [3 of every 4 layers]

An attention mechanism as a torch module; run as a program, this file tests itself.

    block = Attention(dim=64, heads=4)
    y = block(x, attn_mask=None, key_padding_mask=None, is_causal=False)
    y = block(x, is_causal=True)  # in a language model: hides later tokens
    y = block.decode(x, cache)  # the next tokens of a causal text; cache = {} at its start

A hybrid's mechanism: 3 of every 4 layers.
The attention of a model's layers:

    blocks = [attention_of_layer(layer, dim=64, heads=4) for layer in range(depth)]

Digest: 1d8d5786e2017ec0
Source: docs/genomes/hybrid_1d8d5786.json
Genome:
{ "graph_def": [
    {"op": "short_conv", "inputs": ["q"], "params": {"init": "identity", "kernel": 4}},
    {"op": "silu", "inputs": [0]},
    {"op": "l2_norm", "inputs": [1]},
    {"op": "relu", "inputs": [2]},
    {"op": "short_conv", "inputs": ["k"], "params": {"init": "identity", "kernel": 4}},
    {"op": "silu", "inputs": [4]},
    {"op": "l2_norm", "inputs": [5]},
    {"op": "relu", "inputs": [6]},
    {"op": "scaled_dot_product", "inputs": [3, 7]},
    {"op": "softmax_free", "inputs": [8], "params": {"divide": false}},
    {"op": "short_conv", "inputs": ["v"], "params": {"init": "identity", "kernel": 4}},
    {"op": "silu", "inputs": [10]},
    {"op": "delta", "inputs": [5, 11]},
    {"op": "weighted_sum", "inputs": [9, 12]},
    {"op": "rms_norm", "inputs": [13]}
  ],
  "proj_config": {"has_wq": true, "has_wk": true, "has_wv": true, "has_wo": true},
  "placement": {"every": 4, "count": 3}
}
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention


def add_tokens(cache: dict[str, Tensor], name: str, tokens: Tensor) -> Tensor:
    """Add tokens to those that the cache holds, and return all of them."""
    # A copy, since the tokens may be a view of the caller's x.
    cache[name] = torch.cat((cache[name], tokens), dim=2) if name in cache else tokens.clone()
    return cache[name]


def unit_length(tokens: Tensor) -> Tensor:
    """Return each token x divided by max(|x|, 1e-3); the limit bounds the gradient near zero."""
    exact = tokens.to(torch.promote_types(tokens.dtype, torch.float32))
    return F.normalize(exact, dim=-1, eps=1e-3).to(tokens.dtype)


def is_by_sums(keys: int, width: int, is_causal: bool) -> bool:
    """Return whether linear attention first multiplies keys with values, which needs no pairs."""
    if torch.compiler.is_compiling():  # the result must hold for any number of keys
        return not is_causal
    return keys > (max(256, width) if is_causal else width)


def repeat_heads(x: Tensor, heads: int) -> Tensor:
    """Return g heads repeated heads / g times: head i is a copy of head i // (heads / g)."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)


def count_visible(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return each query's number of visible keys, at least 1, broadcastable to (b, h, q, 1)."""
    # In float32 at least: bfloat16 cannot represent odd numbers above 256.
    exact = torch.promote_types(scores.dtype, torch.float32)
    keys = scores.shape[-1]
    if mask is None:
        return torch.full((1,), keys, dtype=exact, device=scores.device)
    visible = mask.expand(*mask.shape[:-1], keys).sum(dim=-1, keepdim=True)
    return visible.clamp(min=1).to(exact)


def past_keys(query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return ``mask`` with later keys hidden from each query."""
    shape = (query.shape[2], key.shape[2])
    past = torch.ones(shape, dtype=torch.bool, device=query.device).tril()
    return past if mask is None else mask & past


def sum_of_pairs(
    weights: Tensor, values: Tensor, mask: Tensor | None, is_causal: bool, divide: bool
) -> Tensor:
    """Return the sums of the visible values times their weights, or with ``divide`` the means."""
    values = repeat_heads(values, weights.shape[1])
    mask = past_keys(weights, weights.mT, mask) if is_causal else mask
    if divide:
        weights = weights / count_visible(weights, mask).to(weights.dtype)
    return (weights if mask is None else weights.masked_fill(~mask, 0.0)) @ values


def in_rows(tokens: Tensor) -> Tensor:
    """Return the tokens in chunks, of which zeros fill the last."""
    return F.pad(tokens, (0, 0, 0, -tokens.shape[2] % 128)).unflatten(2, (-1, 128))


def with_earlier(within: Tensor, rows: Tensor, columns: Tensor, values: Tensor) -> Tensor:
    """Return the sums of each chunk plus those of linear attention over the chunks before it."""
    sums = columns.mT @ values
    # Not cumsum - sums: then the rounding of later tokens would change earlier results.
    before = F.pad(sums[:, :, :-1].cumsum(dim=2), (0, 0, 0, 0, 1, 0))
    return (within + rows @ before).flatten(2, 3)


def sums_so_far(query: Tensor, key: Tensor, values: Tensor) -> Tensor:
    """Return query_i·(the sum of key_j^T values_j over j <= i) for each token i.

    Scores are computed only within a chunk of 128 tokens. Earlier chunks enter as sums of
    key^T·values.
    """
    heads, n = query.shape[1:3]
    rows, columns, row_values = (in_rows(repeat_heads(x, heads)) for x in (query, key, values))
    within = (rows @ columns.mT).tril() @ row_values
    return with_earlier(within, rows, columns, row_values)[:, :, :n]


def visible_tokens(tokens: Tensor, mask: Tensor | None, is_causal: bool) -> tuple[Tensor, Tensor]:
    """Return the tokens, with zeros for hidden ones, and the number of visible ones at each query.

    The number, in float32 or float64, is at least 1. The mask is the same for every query.
    """
    exact = torch.promote_types(tokens.dtype, torch.float32)
    shape = 1, 1, tokens.shape[2], 1
    kept = tokens.new_ones(shape, dtype=exact) if mask is None else mask.mT.to(exact)
    count = kept.cumsum(dim=-2) if is_causal else kept.sum(dim=-2, keepdim=True)
    return tokens if mask is None else tokens * kept.to(tokens.dtype), count.clamp(min=1)


def linear_attention(
    query: Tensor,
    key: Tensor,
    values: Tensor,
    mask: Tensor | None,
    scale: float = 1.0,
    is_causal: bool = False,
    divide: bool = True,
) -> Tensor:
    """Return scale query·key^T·values / n, where n is the number of visible keys.

    The product is computed as query·(key^T·values) if ``mask`` is the same for every query and this
    order is faster (Katharopoulos et al. 2020, section 3.2). ``is_causal`` hides later keys in
    addition to ``mask``. Without ``divide``, n is 1.
    """
    query = query * scale if scale != 1.0 else query
    keys, width = key.shape[2:]
    if is_by_sums(keys, width, is_causal) and (mask is None or mask.shape[-2] == 1):
        values, count = visible_tokens(values, mask, is_causal)
        if is_causal:
            sums = sums_so_far(query, key, values)
            return sums / count.to(query.dtype) if divide else sums
        values = values / count.to(values.dtype) if divide else values
        groups = max(key.shape[1], values.shape[1])  # whose heads have the same keys and values
        sums = repeat_heads(key, groups).mT @ repeat_heads(values, groups)
        return query @ repeat_heads(sums, query.shape[1])
    weights = query @ repeat_heads(key, query.shape[1]).mT
    return sum_of_pairs(weights, values, mask, is_causal, divide)


def drop_padding(tokens: Tensor, mask: Tensor | None) -> Tensor:
    """Return the tokens with zeros in place of each token that is hidden from all queries.

    A mask for another number of keys leaves the tokens unchanged.
    """
    if mask is None:
        return tokens
    full = mask[(None,) * (4 - mask.dim())]
    visible = full.any(dim=2).any(dim=1)[:, None, :, None]
    if visible.shape[2] not in (1, tokens.shape[2]):
        return tokens
    return tokens.masked_fill(~visible, 0.0)


def log_decay(query_gates: Tensor, key_gates: Tensor) -> Tensor:
    """Return -|c_i - c_j|, the logarithm of the product of the gates between a query i and a key j.

    Where both sums are equal, for example because gates round to 1, the derivative is that of
    c_i - c_j: the absolute value's derivative, zero, would not train these gates.
    """
    difference = query_gates - key_gates
    return torch.where(difference > 0, -difference, difference)


def decayed_products(query: Tensor, key: Tensor, query_gates: Tensor, key_gates: Tensor) -> Tensor:
    """Return sum_u q_iu k_ju exp(-|c_iu - c_ju|) over the features u, for queries i and keys j."""
    key = key.to(query.dtype)  # keys made of gates are in float32
    if query_gates.shape[-1] == 1:
        decay = torch.exp(log_decay(query_gates, key_gates.mT))
        return query @ key.mT * decay.to(query.dtype)
    decay = torch.exp(log_decay(query_gates[:, :, :, None], key_gates[:, :, None]))
    rows = query[:, :, :, None] * decay.to(query.dtype)
    return torch.einsum("bhqkw,bhkw->bhqk", rows, key)


def unrolled(overlap: Tensor, tokens: Tensor) -> Tensor:
    """Return u with u_i + sum_{j < i} overlap_ij u_j = tokens_i."""
    # Autocast returns 16 bits from products; the solver accepts 32 and 64.
    lower = overlap.to(tokens.dtype).tril(-1)
    return torch.linalg.solve_triangular(lower, tokens, upper=False, unitriangular=True)


def without_erased(erase: Tensor, keys: Tensor, values: Tensor, gates: Tensor | None) -> Tensor:
    """Return u with u_i + sum_{j < i} (e_i D_ij·k_j) u_j = v_i, from all pairs of tokens.

    D_ij is the product of the gates after token j up to i.
    """
    products = erase @ keys.mT if gates is None else decayed_products(erase, keys, gates, gates)
    return unrolled(products, values)


class Delta(nn.Module):
    """The delta rule: each value minus what the state already returns for its key.

    u_t = b_t (v_t - k_t diag(f_t) S_{t-1}) and S_t = diag(f_t) S_{t-1} + k_t^T u_t, with keys k of
    unit length, strengths b_t = sigmoid(w_h·x_t + c_h), and forget gates f_t (1 without gates). The
    result u, with D_ij the product of the gates after token j up to i, solves

        u_i + b_i sum_{j < i} (k_i D_ij·k_j) u_j = b_i v_i

    Linear attention over the same keys and gates, with u as values, completes DeltaNet.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.strength = nn.Linear(dim, heads)

    def forward(
        self,
        keys: Tensor,
        tokens: Tensor,
        gates: Tensor | None = None,
        *,
        x: Tensor,
        mask: Tensor | None = None,
    ) -> Tensor:
        return self.solve(*self.operands(keys, tokens, x, mask), gates).to(tokens.dtype)

    def operands(
        self, keys: Tensor, tokens: Tensor, x: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return b_i k_i, k_i and b_i v_i, in float32 at least."""
        exact = torch.promote_types(tokens.dtype, torch.float32)
        strength = drop_padding(torch.sigmoid(self.strength(x)).mT[..., None], mask).to(exact)
        keys = unit_length(keys.to(exact))
        return strength * keys, keys, strength * tokens.to(exact)

    def solve(self, erase: Tensor, keys: Tensor, values: Tensor, gates: Tensor | None) -> Tensor:
        return without_erased(erase, keys, values, gates)


def empty_state(keys: Tensor, values: Tensor) -> Tensor:
    """Return the state before the first token, in float32 at least."""
    exact = torch.promote_types(values.dtype, torch.float32)
    return values.new_zeros(*keys.shape[:2], keys.shape[3], values.shape[3], dtype=exact)


def next_state(state: Tensor, keys: Tensor, values: Tensor, gates: Tensor) -> Tensor:
    """Return the last of the states S_t = diag(f_t) S_{t-1} + k_t^T v_t, with forget gates f."""
    last = gates[:, :, -1:]
    written = (keys * torch.exp(last - gates)).to(state.dtype).mT @ values.to(state.dtype)
    return torch.exp(last).mT * state + written


def read_state(state: Tensor, queries: Tensor, gates: Tensor) -> Tensor:
    """Return q_i diag(c_i) S for each query q_i, with the product c_i of the gates up to i."""
    return (queries * torch.exp(gates)).to(state.dtype) @ state


def continue_delta(
    rule: Delta, state: Tensor | None, keys: Tensor, tokens: Tensor, *gates: Tensor, x: Tensor
) -> tuple[Tensor, Tensor]:
    """Return ``rule(keys, tokens, *gates, x=x)`` after earlier tokens' state, and the new state."""
    erase, keys, values = rule.operands(keys, tokens, x, None)
    state = empty_state(keys, values) if state is None else state
    passed = gates[0] if gates else torch.zeros_like(keys[..., :1])
    values = values - read_state(state, erase, passed)
    out = rule.solve(erase, keys, values, gates[0] if gates else None)
    return out.to(tokens.dtype), next_state(state, keys, out, passed)


def with_past(
    state: Tensor | None,
    query: Tensor,
    key: Tensor,
    values: Tensor,
    *gates: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return linear attention, which is not divided, after earlier tokens, and the next state.

    Products of pairs are computed in chunks, each of which continues from the state before it.
    """
    heads, groups, sums = query.shape[1], max(key.shape[1], values.shape[1]), []
    key, values = repeat_heads(key, groups), repeat_heads(values, groups)
    state = empty_state(key, values) if state is None else state
    (passed,) = gates or (torch.zeros_like(query[:, :1, :, :1]),)
    for i in range(0, query.shape[2], 64):
        q, k, v, c = (x[:, :, i : i + 64] for x in (query, key, values, passed))
        c = c - passed[:, :, i - 1 : i] if i else c
        new = decayed_products(q, repeat_heads(k, heads), c, c).tril() @ repeat_heads(v, heads)
        sums.append(new + read_state(repeat_heads(state, heads), q, c))
        state = next_state(state, k, v, c)
    return torch.cat(sums, dim=2).to(values.dtype), state


class ShortConv(nn.Module):
    """Depthwise convolution over the tokens, with one kernel for each feature of each head.

    out_t = b + sum_s w_s tokens_{t-s}, with s = 0 to kernel - 1 if causal. Otherwise the kernel is
    centred on t, and an even kernel covers one token more to the right. Padding and tokens beyond
    the edges count as zeros. ``init`` is ``random``; ``identity`` for out_t = tokens_t; or
    ``residual`` for the sum of both.
    """

    def __init__(
        self, heads: int, width: int, *, kernel: int = 3, causal: bool = True, init: str = "random"
    ) -> None:
        super().__init__()
        self.reach = (kernel - 1, 0) if causal else ((kernel - 1) // 2, kernel // 2)
        self.conv = nn.Conv1d(heads * width, heads * width, kernel, groups=heads * width)
        if init != "random":
            with torch.no_grad():
                if init == "identity":
                    for parameter in self.conv.parameters():
                        parameter.zero_()
                self.conv.weight[:, :, self.reach[0]] += 1.0

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        padded = F.pad(drop_padding(tokens, mask), (0, 0, *self.reach))
        mixed = self.conv(padded.transpose(2, 3).flatten(1, 2))
        return mixed.unflatten(1, (tokens.shape[1], -1)).transpose(2, 3)


def edges(gates: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sums of each chunk's gates before its first token, and at its last token."""
    end = gates[:, :, :, -1:]
    return F.pad(end[:, :, :-1], (0, 0, 0, 0, 1, 0)), end


CHUNK = 64


def in_chunks(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the tokens in chunks. The last token is repeated to fill the last chunk."""
    short = -x.shape[2] % CHUNK
    if short:
        x = torch.cat((x, x[:, :, -1:].expand(-1, -1, short, -1)), dim=2)
    return x.to(dtype).unflatten(2, (-1, CHUNK))


PAIRED_TOKENS = 8


def is_in_chunks(tokens: int, gates: int) -> bool:
    """Return whether attention with so many gates of a head is computed in chunks.

    With gates of features, each pair has an exponential for each feature. A traced graph, which is
    valid for any number of tokens, computes all pairs.
    """
    most = CHUNK * (2 - gates) if gates < 2 else PAIRED_TOKENS
    return tokens > most and not torch.compiler.is_compiling()


def past_products(query: Tensor, key: Tensor, gates: Tensor | None) -> Tensor:
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


def solve_in_chunks(erase: Tensor, keys: Tensor, values: Tensor, gates: Tensor | None) -> Tensor:
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


class FastDelta(Delta):
    """The delta rule in chunks, for long sequences."""

    def solve(self, erase: Tensor, keys: Tensor, values: Tensor, gates: Tensor | None) -> Tensor:
        return solve_in_chunks(erase, keys, values, gates)


class RmsNorm(nn.Module):
    """Root mean square norm of each token's features; all heads share the gain g.

    out = x / sqrt(mean(x^2) + 1e-6) * g, over the features of ``span`` neighbouring heads together,
    with a gain of span * w numbers. The last of an odd number of heads is normalised alone.
    """

    def __init__(self, width: int, *, span: int = 1) -> None:
        super().__init__()
        self.span = span
        self.gain = nn.Parameter(torch.ones(span * width))

    def forward(self, tokens: Tensor) -> Tensor:
        # The mean of squares in float32 at least: a square can overflow 16 bits.
        exact = tokens.to(torch.promote_types(tokens.dtype, torch.float32))
        if self.span == 1:
            size = (exact.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()
            return (exact / size * self.gain).to(tokens.dtype)
        heads = tokens.shape[1]
        mean = exact.square().mean(dim=-1, keepdim=True)
        even = mean[:, : heads // 2 * 2].unflatten(1, (-1, 2)).mean(dim=2)
        mean = torch.cat((even.repeat_interleave(2, dim=1), mean[:, heads // 2 * 2 :]), dim=1)
        gain = self.gain.view(2, 1, -1).repeat(heads // 2 + 1, 1, 1)[:heads]
        return (exact / (mean + 1e-6).sqrt() * gain).to(tokens.dtype)


class StandardAttention(nn.Module):
    """(softmax((Q·Kᵀ)/√d)·V)·W_O

    (batch, tokens, dim) to (batch, tokens, dim).
    """

    def __init__(self, dim: int = 64, heads: int = 4) -> None:
        super().__init__()
        if dim < 1 or heads < 1 or dim % heads:
            raise ValueError(f"dim {dim} and heads {heads}: heads must divide dim")
        self.dim, self.heads = dim, heads
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wk = nn.Linear(dim, dim, bias=False)
        self.wv = nn.Linear(dim, dim, bias=False)
        self.wo = nn.Linear(dim, dim)

    def forward(
        self,
        x: Tensor,
        attn_mask: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Masks: attn_mask True where allowed, key_padding_mask True at padding."""
        mask, n = attn_mask, x.shape[1]
        if key_padding_mask is not None:
            kept = ~key_padding_mask[:, None, None]
            mask = kept if mask is None else mask & kept
        if is_causal and mask is not None:
            mask = mask & torch.ones(n, n, dtype=torch.bool, device=x.device).tril()
        q = self.wq(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k = self.wk(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        v = self.wv(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        tokens_2 = scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal and mask is None)
        return self.wo(tokens_2.transpose(1, 2).flatten(2))

    def decode(self, x: Tensor, cache: dict[str, Tensor]) -> Tensor:
        """Return the outputs of the next tokens x of a causal text, and add them to the cache.

        Each layer has a cache of its own, which is empty before the first token. Axis 0 of its
        tensors is the batch. They are replaced, never changed, so that dict(cache) is a copy.
        """
        start, n = cache["k"].shape[2] if cache else 0, x.shape[1]
        mask = torch.ones(n, start + n, dtype=torch.bool, device=x.device).tril(start)
        q = self.wq(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k = self.wk(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        v = self.wv(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        past_k = add_tokens(cache, "k", k)
        past_v = add_tokens(cache, "v", v)
        tokens_2 = scaled_dot_product_attention(q, past_k, past_v, mask)
        return self.wo(tokens_2.transpose(1, 2).flatten(2))


class Attention(nn.Module):
    """A1 = SiLU(conv_4(K)[init=identity]); (RMS((ReLU(SiLU(conv_4(Q)[init=identity])/|SiLU(conv
    _4(Q)[init=identity])|)·ReLU(A1/|A1|)ᵀ)/√d/n[divide=no]·delta(A1,
    SiLU(conv_4(V)[init=identity]))))·W_O   [3 of every 4 layers]

    (batch, tokens, dim) to (batch, tokens, dim).
    """

    def __init__(self, dim: int = 64, heads: int = 4) -> None:
        super().__init__()
        if dim < 1 or heads < 1 or dim % heads:
            raise ValueError(f"dim {dim} and heads {heads}: heads must divide dim")
        self.dim, self.heads = dim, heads
        self.scale_8 = (dim // heads) ** -0.5
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wk = nn.Linear(dim, dim, bias=False)
        self.wv = nn.Linear(dim, dim, bias=False)
        self.short_conv_0 = ShortConv(heads=heads, width=dim // heads, kernel=4, init="identity")
        self.short_conv_4 = ShortConv(heads=heads, width=dim // heads, kernel=4, init="identity")
        self.short_conv_10 = ShortConv(heads=heads, width=dim // heads, kernel=4, init="identity")
        self.delta_12 = FastDelta(dim=dim, heads=heads)
        self.rms_norm_14 = RmsNorm(width=dim // heads)
        self.wo = nn.Linear(dim, dim)

    def forward(
        self,
        x: Tensor,
        attn_mask: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Masks: attn_mask True where allowed, key_padding_mask True at padding."""
        mask, n = attn_mask, x.shape[1]
        if key_padding_mask is not None:
            kept = ~key_padding_mask[:, None, None]
            mask = kept if mask is None else mask & kept
        kept = mask
        if is_causal and mask is not None:
            mask = mask & torch.ones(n, n, dtype=torch.bool, device=x.device).tril()
        q = self.wq(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k = self.wk(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        v = self.wv(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        tokens_0 = self.short_conv_0(q, mask=mask)
        tokens_1 = F.silu(tokens_0)
        tokens_2 = unit_length(tokens_1)
        tokens_3 = F.relu(tokens_2)
        tokens_4 = self.short_conv_4(k, mask=mask)
        tokens_5 = F.silu(tokens_4)
        tokens_6 = unit_length(tokens_5)
        tokens_7 = F.relu(tokens_6)
        tokens_10 = self.short_conv_10(v, mask=mask)
        tokens_11 = F.silu(tokens_10)
        tokens_12 = self.delta_12(tokens_5, tokens_11, x=x, mask=mask)
        tokens_13 = linear_attention(
            tokens_3, tokens_7, tokens_12, kept, self.scale_8, is_causal=is_causal, divide=False
        )
        tokens_14 = self.rms_norm_14(tokens_13)
        return self.wo(tokens_14.transpose(1, 2).flatten(2))

    def decode(self, x: Tensor, cache: dict[str, Tensor]) -> Tensor:
        """Return the outputs of the next tokens x of a causal text, and add them to the cache.

        Each layer has a cache of its own, which is empty before the first token. Axis 0 of its
        tensors is the batch. They are replaced, never changed, so that dict(cache) is a copy.
        """
        n = x.shape[1]
        q = self.wq(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k = self.wk(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        v = self.wv(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        q_0 = add_tokens(cache, "q_0", q)
        cache["q_0"] = q_0[:, :, -3:]
        tokens_0 = self.short_conv_0(q_0)[:, :, -n:]
        tokens_1 = F.silu(tokens_0)
        tokens_2 = unit_length(tokens_1)
        tokens_3 = F.relu(tokens_2)
        k_4 = add_tokens(cache, "k_4", k)
        cache["k_4"] = k_4[:, :, -3:]
        tokens_4 = self.short_conv_4(k_4)[:, :, -n:]
        tokens_5 = F.silu(tokens_4)
        tokens_6 = unit_length(tokens_5)
        tokens_7 = F.relu(tokens_6)
        v_10 = add_tokens(cache, "v_10", v)
        cache["v_10"] = v_10[:, :, -3:]
        tokens_10 = self.short_conv_10(v_10)[:, :, -n:]
        tokens_11 = F.silu(tokens_10)
        tokens_12, cache["state_12"] = continue_delta(
            self.delta_12, cache.get("state_12"), tokens_5, tokens_11, x=x
        )
        tokens_13, cache["state_13"] = with_past(
            cache.get("state_13"), tokens_3 * self.scale_8, tokens_7, tokens_12
        )
        tokens_14 = self.rms_norm_14(tokens_13)
        return self.wo(tokens_14.transpose(1, 2).flatten(2))


def attention_of_layer(layer: int, dim: int = 64, heads: int = 4) -> nn.Module:
    """Return the attention of a model's layer, numbered from 0."""
    has_mechanism = layer % 4 < 3
    return (Attention if has_mechanism else StandardAttention)(dim, heads)


def self_test() -> float:
    """The largest difference from the outputs recorded when this file was written."""
    block = nn.Sequential(Attention(), StandardAttention()).double().eval()
    with torch.no_grad():
        for number, weight in enumerate(block.parameters()):
            pattern = torch.arange(weight.numel(), dtype=weight.dtype) * 0.7 + number
            weight.copy_(0.3 * pattern.cos().view_as(weight))
        x = (torch.arange(2 * 7 * block[0].dim, dtype=torch.float64) * 0.37).sin()
        out = block(x.view(2, 7, -1)).flatten()[: 2 * block[0].dim : max(1, block[0].dim // 4)]
    expected = [
        3.28350233164, 0.964012846157, -1.36692769456, -2.97912275006,
        3.2832485768, 0.963663555736, -1.36728126334, -2.97938822218,
    ]
    return (out - torch.tensor(expected, dtype=torch.float64)).abs().max().item()


if __name__ == "__main__":
    difference = self_test()
    print(f"largest difference from the recorded outputs: {difference:.1e}")
    raise SystemExit(0 if difference < 1e-6 else 1)
