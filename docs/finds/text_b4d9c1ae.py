"""A1 = f_sigmoid(x); (softmax(((RoPE(RMS(Q))·RoPE(RMS(K))ᵀ)/√d + log ΠA1))·V)·W_O   [1/4 H query heads, 1/4 H kv heads, d_k = 1/4 d_h]

An attention mechanism as a torch module; run as a program, this file tests itself.

    block = Attention(dim=64, heads=4)
    y = block(x, attn_mask=None, key_padding_mask=None, is_causal=False)
    y = block(x, is_causal=True)  # in a language model: hides later tokens
    y = block.decode(x, cache)  # the next tokens of a causal text; cache = {} at its start

Digest: b4d9c1aec24a9b89
Source: docs/genomes/text_b4d9c1ae.json
Genome:
{ "graph_def": [
    {"op": "rms_norm", "inputs": ["q"]},
    {"op": "rope", "inputs": [0]},
    {"op": "rms_norm", "inputs": ["k"]},
    {"op": "rope", "inputs": [2]},
    {"op": "scaled_dot_product", "inputs": [1, 3]},
    {"op": "forget_gate", "inputs": ["v"]},
    {"op": "decay", "inputs": [4, 5]},
    {"op": "softmax", "inputs": [6]},
    {"op": "weighted_sum", "inputs": [7, "v"]}
  ],
  "proj_config": {"has_wq": true, "has_wk": true, "has_wv": true, "has_wo": true, "q_heads": "1/4", "kv_heads": "1/4", "qk_dim": "1/4"}
}
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def log_decay(query_gates: Tensor, key_gates: Tensor) -> Tensor:
    """Return -|c_i - c_j|, the logarithm of the product of the gates between a query i and a key j.

    Where both sums are equal, for example because gates round to 1, the derivative is that of
    c_i - c_j: the absolute value's derivative, zero, would not train these gates.
    """
    difference = query_gates - key_gates
    return torch.where(difference > 0, -difference, difference)


def add_tokens(cache: dict[str, Tensor], name: str, tokens: Tensor) -> Tensor:
    """Add tokens to those that the cache holds, and return all of them."""
    # A copy, since the tokens may be a view of the caller's x.
    cache[name] = torch.cat((cache[name], tokens), dim=2) if name in cache else tokens.clone()
    return cache[name]


def add_gates(cache: dict[str, Tensor], name: str, gates: Tensor) -> Tensor:
    """Add sums of the new tokens' gates to those that the cache holds, and return all of them."""
    return add_tokens(cache, name, gates + cache[name][:, :, -1:] if name in cache else gates)


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


def key_width(label: str, head_dim: int) -> int:
    """Return the key width for a width label, such as 32 for "1/2" of a head width of 64.

    Fractions of the head width are rounded to an even number, and are at least 2.
    """
    if label == "all" or head_dim < 2:
        return head_dim
    top, bottom = (int(part) for part in label.split("/"))
    return max(2, 2 * round(top * head_dim / (2 * bottom)))


def rotate(features: Tensor, start: int | Tensor = 0, base: float = 10000.0) -> Tensor:
    """Rotate the pairs (i, i + w/2) of features by the angle t / base^(2i/w), in radians.

    t is the token's position; the first token has position ``start``. The axes ``*r`` rotate alike.
    """
    length, width = features.shape[2], features.shape[-1]
    # Angles in float32 at least: bfloat16 cannot represent all positions above 256.
    exact = torch.promote_types(features.dtype, torch.float32)
    pairs = torch.arange(width // 2, device=features.device, dtype=exact)
    position = torch.arange(length, device=features.device, dtype=exact) + start
    angle = position[:, None] * base ** (-2.0 * pairs / width)
    angle = torch.cat((-angle, angle), dim=-1).reshape(length, *(1,) * (features.dim() - 4), width)
    cos, sin = angle.cos().to(features.dtype), angle.sin().to(features.dtype)
    return features * cos + features.roll(width // 2, dims=-1) * sin


class Rope(nn.Module):
    """Rotary position embedding: dot products depend on the difference of positions only.

    out_t = R_t x_t, with (R_i q) · (R_j k) = q · R_{j-i} k. The share ``share`` of each head's
    features, from the first on, is rotated: an even number of at least two. Pair i of r rotated
    features rotates by base^(-2i/r) radians from token to token.
    """

    def __init__(self, width: int, *, share: str = "all", base: float = 10000.0) -> None:
        super().__init__()
        self.rotated = key_width(share, width)
        self.base = base
        if self.rotated % 2:
            raise ValueError(f"rope: the width is {width}; expected an even number")

    def forward(self, tokens: Tensor, start: int | Tensor = 0) -> Tensor:
        if self.rotated == tokens.shape[-1]:
            return rotate(tokens, start, self.base)
        first, rest = tokens[..., : self.rotated], tokens[..., self.rotated :]
        return torch.cat((rotate(first, start, self.base), rest), dim=-1)


class ScaledDotProduct(nn.Module):
    """Dot products of queries and keys: scores_ij = q_i · k_j / sqrt(r), r = ``rank``.

    r is the operands' width; for operands of model width, as in Patterns, it is the head width.
    """

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.scale = rank**-0.5

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return query @ key.transpose(-2, -1) * self.scale


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


def summed(logarithms: Tensor, mask: Tensor | None) -> Tensor:
    """Return the sums of the logarithms up to each token; padding counts as a gate of 1."""
    exact = torch.promote_types(logarithms.dtype, torch.float32)
    return drop_padding(logarithms.to(exact), mask).cumsum(dim=2)


class GateOfInput(nn.Module):
    """Base of forget gates that are computed from the block's input x.

    The gates are sigmoid(raw)^(1 / root), or exp(-r softplus(raw)) if ``form`` is exponential, with
    a learned rate r of each head. Rates start evenly between 1 and 16.
    """

    def __init__(self, heads: int, form: str, root: float = 1.0) -> None:
        super().__init__()
        is_exponential = form == "exponential"
        self.rate = nn.Parameter(torch.linspace(1.0, 16.0, heads).log()) if is_exponential else None
        self.root = root

    def forward(self, tokens: Tensor, x: Tensor, mask: Tensor | None = None) -> Tensor:
        raw = self.raw(x)
        raw = raw.to(torch.promote_types(raw.dtype, torch.float32))
        if self.rate is None:
            return summed(F.logsigmoid(raw) / self.root, mask)
        return summed(-self.rate.exp().view(-1, 1, 1) * F.softplus(raw), mask)

    def raw(self, x: Tensor) -> Tensor:
        """Return the numbers of which the gates are functions."""
        raise NotImplementedError


class ForgetGate(GateOfInput):
    """Forget gates of each head, computed from the block's input x.

    sigmoid: f = sigmoid(w_h·x + b_h); gates start near 1 - 2^(-8 (h + 1) / H), h = 0, ..., H - 1.
    exponential: f = exp(-r_h softplus(w_h·x + b_h)); rates r_h start evenly between 1 and 16, and
    softplus(b_h) evenly in logarithm between 0.001 and 0.1, where the paper draws both at random.
    """

    def __init__(
        self, dim: int, heads: int, *, form: str = "sigmoid", least_heads: str = "one"
    ) -> None:
        super().__init__(heads, form)
        self.gate = nn.Linear(dim, heads)
        with torch.no_grad():
            if form == "sigmoid":
                share = 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads)
                self.gate.bias.copy_(torch.logit(1.0 - share))
            else:
                self.gate.bias.copy_(torch.logspace(-3.0, -1.0, heads).expm1().log())

    def raw(self, x: Tensor) -> Tensor:
        return self.gate(x).mT[..., None]


def hide(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Set the scores of hidden keys to -inf."""
    return scores if mask is None else scores.masked_fill(~mask, -torch.inf)


def masked_softmax(scores: Tensor, mask: Tensor | None, filtered: bool) -> Tensor:
    """Return the softmax of each row over the visible keys; a row without any gives zeros."""
    if mask is None and not filtered:
        return torch.softmax(scores, dim=-1)
    scores = hide(scores, mask)
    # The softmax of a row without keys would be NaN.
    empty = scores.detach().amax(dim=-1, keepdim=True) == -torch.inf
    return torch.softmax(scores.masked_fill(empty, 0.0), dim=-1).masked_fill(empty, 0.0)


class Softmax(nn.Module):
    """Softmax over the visible keys; a query that sees no key gets weights of zero.

    weights_ij = exp(scores_ij) / sum_k exp(scores_ik)
    """

    def __init__(self, filtered: bool = False) -> None:
        super().__init__()
        self.filtered = filtered

    def forward(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        return masked_softmax(scores, mask, self.filtered)


class Attention(nn.Module):
    """A1 = f_sigmoid(x); (softmax(((RoPE(RMS(Q))·RoPE(RMS(K))ᵀ)/√d + log ΠA1))·V)·W_O   [1/4 H
    query heads, 1/4 H kv heads, d_k = 1/4 d_h]

    (batch, tokens, dim) to (batch, tokens, dim).
    """

    def __init__(self, dim: int = 64, heads: int = 4) -> None:
        super().__init__()
        if dim < 1 or heads < 1 or dim % heads:
            raise ValueError(f"dim {dim} and heads {heads}: heads must divide dim")
        self.dim, self.heads = dim, heads
        if heads > 4 and heads % 4:
            raise ValueError(f"1/4 of {heads} heads is no whole number; expected heads that divide")
        self.q_heads = max(1, heads // 4)
        key_width = min(dim // heads, max(2, 2 * round(dim // heads / 8)))
        self.wq = nn.Linear(dim, self.q_heads * key_width, bias=False)
        self.wk = nn.Linear(dim, self.q_heads * key_width, bias=False)
        self.wv = nn.Linear(dim, self.q_heads * (dim // heads), bias=False)
        self.rms_norm_0 = RmsNorm(width=key_width)
        self.rope_1 = Rope(width=key_width)
        self.rms_norm_2 = RmsNorm(width=key_width)
        self.rope_3 = Rope(width=key_width)
        self.scaled_dot_product_4 = ScaledDotProduct(rank=key_width)
        self.forget_gate_5 = ForgetGate(dim=dim, heads=self.q_heads)
        self.softmax_7 = Softmax()
        self.wo = nn.Linear(self.q_heads * (dim // heads), dim)

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
        if is_causal:
            past = torch.ones(n, n, dtype=torch.bool, device=x.device).tril()
            mask = past if mask is None else mask & past
        q = self.wq(x).unflatten(-1, (self.q_heads, -1)).transpose(1, 2)
        k = self.wk(x).unflatten(-1, (self.q_heads, -1)).transpose(1, 2)
        v = self.wv(x).unflatten(-1, (self.q_heads, -1)).transpose(1, 2)
        tokens_0 = self.rms_norm_0(q)
        tokens_1 = self.rope_1(tokens_0)
        tokens_2 = self.rms_norm_2(k)
        tokens_3 = self.rope_3(tokens_2)
        scores_4 = self.scaled_dot_product_4(tokens_1, tokens_3)
        gates_5 = self.forget_gate_5(v, x=x, mask=mask)
        scores_6 = scores_4 + log_decay(gates_5, gates_5.mT).to(scores_4.dtype)
        weights_7 = self.softmax_7(scores_6, mask=mask)
        tokens_8 = weights_7 @ v
        return self.wo(tokens_8.transpose(1, 2).flatten(2))

    def decode(self, x: Tensor, cache: dict[str, Tensor]) -> Tensor:
        """Return the outputs of the next tokens x of a causal text, and add them to the cache.

        Each layer has a cache of its own, which is empty before the first token. Axis 0 of its
        tensors is the batch. They are replaced, never changed, so that dict(cache) is a copy.
        """
        start, n = cache["tokens_3"].shape[2] if cache else 0, x.shape[1]
        mask = torch.ones(n, start + n, dtype=torch.bool, device=x.device).tril(start)
        q = self.wq(x).unflatten(-1, (self.q_heads, -1)).transpose(1, 2)
        k = self.wk(x).unflatten(-1, (self.q_heads, -1)).transpose(1, 2)
        v = self.wv(x).unflatten(-1, (self.q_heads, -1)).transpose(1, 2)
        tokens_0 = self.rms_norm_0(q)
        tokens_1 = self.rope_1(tokens_0, start=start)
        tokens_2 = self.rms_norm_2(k)
        tokens_3 = self.rope_3(tokens_2, start=start)
        past_tokens_3 = add_tokens(cache, "tokens_3", tokens_3)
        scores_4 = self.scaled_dot_product_4(tokens_1, past_tokens_3)
        gates_5 = self.forget_gate_5(v, x=x)
        past_gates_5 = add_gates(cache, "gates_5", gates_5)
        scores_6 = scores_4 + log_decay(
            past_gates_5[:, :, start:], past_gates_5.mT
        ).to(scores_4.dtype)
        weights_7 = self.softmax_7(scores_6, mask=mask)
        past_v = add_tokens(cache, "v", v)
        tokens_8 = weights_7 @ past_v
        return self.wo(tokens_8.transpose(1, 2).flatten(2))


def self_test() -> float:
    """The largest difference from the outputs recorded when this file was written."""
    block = Attention().double().eval()
    with torch.no_grad():
        for number, weight in enumerate(block.parameters()):
            pattern = torch.arange(weight.numel(), dtype=weight.dtype) * 0.7 + number
            weight.copy_(0.3 * pattern.cos().view_as(weight))
        x = (torch.arange(2 * 7 * block.dim, dtype=torch.float64) * 0.37).sin()
        out = block(x.view(2, 7, -1)).flatten()[: 2 * block.dim : max(1, block.dim // 4)]
    expected = [
        0.14570408259, 0.208139618528, 0.114721000117, -0.0580347639191,
        0.473723558499, -0.217180938989, 0.630250732299, -0.655177592297,
    ]
    return (out - torch.tensor(expected, dtype=torch.float64)).abs().max().item()


if __name__ == "__main__":
    difference = self_test()
    print(f"largest difference from the recorded outputs: {difference:.1e}")
    raise SystemExit(0 if difference < 1e-6 else 1)
