"""A1 = SiLU(conv_4(K)[init=identity]); (RMS((ReLU(SiLU(conv_4(Q)[init=identity])/|SiLU(conv_4(Q)[init=identity])|)·ReLU(A1/|A1|)ᵀ)/√d/n[divide=no]·delta(A1, SiLU(conv_4(V)[init=identity]))))·W_O   [3 of every 4 layers]

An attention mechanism as a torch module; run as a program, this file tests itself.

    block = Attention(dim=64, heads=4)
    y = block(x, attn_mask=None, key_padding_mask=None, is_causal=False)

A hybrid's mechanism: 3 of every 4 layers.
The attention of layers 0 to 3:

    blocks = [attention_of_layer(layer, dim=64, heads=4) for layer in range(4)]

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


def sums_of_values(
    query: Tensor, key: Tensor, values: Tensor, mask: Tensor | None, scale: float
) -> Tensor:
    """Return scale query·key^T·values, summed over the visible keys."""
    query = query * scale
    if mask is None or mask.shape[-2] == 1:
        return query @ (key.mT @ (values if mask is None else values * mask.mT.to(values.dtype)))
    return (query @ key.mT).masked_fill(~mask, 0.0) @ values


def drop_padding(tokens: Tensor, mask: Tensor | None) -> Tensor:
    """Return the tokens with zeros in place of each token that is hidden from all queries.

    In operations that mix neighbouring tokens, padding then counts as zeros, like tokens beyond the
    edges of the sequence. A mask for another number of keys leaves the tokens unchanged.
    """
    if mask is None:
        return tokens
    full = mask[(None,) * (4 - mask.dim())]
    visible = full.any(dim=2).any(dim=1)[:, None, :, None]
    if visible.shape[2] not in (1, tokens.shape[2]):
        return tokens
    return tokens.masked_fill(~visible, 0.0)


class ShortConv(nn.Module):
    """Depthwise convolution over the tokens, with one kernel for each feature of each head.

    out_t = b + sum_s w_s tokens_{t-s}, with s = 0 to kernel - 1 if causal. Otherwise the kernel is
    centred on t, and an even kernel covers one token more to the right. Padding and tokens beyond
    the edges count as zeros.
    """

    def __init__(self, heads: int, width: int, *, kernel: int = 3) -> None:
        super().__init__()
        self.reach = kernel - 1, 0
        self.conv = nn.Conv1d(heads * width, heads * width, kernel, groups=heads * width)
        with torch.no_grad():
            for parameter in self.conv.parameters():
                parameter.zero_()
            self.conv.weight[:, :, self.reach[0]] += 1.0

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        return self._mixed(F.pad(drop_padding(tokens, mask), (0, 0, *self.reach)))

    def _mixed(self, tokens: Tensor) -> Tensor:
        mixed = self.conv(tokens.transpose(2, 3).flatten(1, 2))
        return mixed.unflatten(1, (tokens.shape[1], -1)).transpose(2, 3)


def unrolled(overlap: Tensor, tokens: Tensor) -> Tensor:
    """Return u with u_i + sum_{j < i} overlap_ij u_j = tokens_i."""
    # Autocast returns 16 bits from products; the solver accepts 32 and 64.
    lower = overlap.to(tokens.dtype).tril(-1)
    return torch.linalg.solve_triangular(lower, tokens, upper=False, unitriangular=True)


def without_erased(erase: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return u with u_i + sum_{j < i} (e_i D_ij·k_j) u_j = v_i, from all pairs of tokens.

    D_ij is the product of the gates after token j up to i.
    """
    products = erase @ keys.mT
    return unrolled(products, values)


class Delta(nn.Module):
    """The delta rule: each value minus what the state already returns for its key.

    u_t = b_t (v_t - k_t diag(f_t) S_{t-1}) and S_t = diag(f_t) S_{t-1} + k_t^T u_t, with keys k of
    unit length, strengths b_t = sigmoid(w_h·x_t + c_h), and forget gates f_t (1 without gates). The
    result is u. With D_ij the product of the gates after token j up to i, it solves the triangular
    system

        u_i + b_i sum_{j < i} (k_i D_ij·k_j) u_j = b_i v_i

    Linear attention over the same keys of unit length, with u as values, completes these models:
    DeltaNet without gates, Gated DeltaNet with gates of heads, and Kimi Delta Attention with gates
    of features. With gates the linear attention is gated by the same gates.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.strength = nn.Linear(dim, heads)

    def forward(
        self, keys: Tensor, tokens: Tensor, *, x: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        erase, keys, values = self._operands(keys, tokens, x, mask)
        return self.solve(erase, keys, values).to(tokens.dtype)

    def _operands(
        self, keys: Tensor, tokens: Tensor, x: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        exact = torch.promote_types(tokens.dtype, torch.float32)
        strength = drop_padding(torch.sigmoid(self.strength(x)).mT[..., None], mask).to(exact)
        keys = F.normalize(keys.to(exact), dim=-1)
        return strength * keys, keys, strength * tokens.to(exact)

    def solve(self, erase: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return without_erased(erase, keys, values)


class RmsNorm(nn.Module):
    """Root mean square norm of each token's features; all heads share the gain g.

    out = x / sqrt(mean(x^2) + 1e-6) * g
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, tokens: Tensor) -> Tensor:
        # The mean of squares in float32 at least: a square can overflow 16 bits.
        exact = tokens.to(torch.promote_types(tokens.dtype, torch.float32))
        size = (exact.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()
        return (exact / size * self.gain).to(tokens.dtype)


def unit_length(tokens: Tensor) -> Tensor:
    """Return each token x divided by max(|x|, 1e-3); the limit bounds the gradient near zero."""
    exact = tokens.to(torch.promote_types(tokens.dtype, torch.float32))
    return F.normalize(exact, dim=-1, eps=1e-3).to(tokens.dtype)


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
        tokens_2 = F.scaled_dot_product_attention(
            q, k, v, mask, is_causal=is_causal and mask is None
        )
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
        self.short_conv_0 = ShortConv(heads=heads, width=dim // heads, kernel=4)
        self.short_conv_4 = ShortConv(heads=heads, width=dim // heads, kernel=4)
        self.short_conv_10 = ShortConv(heads=heads, width=dim // heads, kernel=4)
        self.delta_12 = Delta(dim=dim, heads=heads)
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
        if is_causal:
            past = torch.ones(n, n, dtype=torch.bool, device=x.device).tril()
            mask = past if mask is None else mask & past
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
        tokens_13 = sums_of_values(tokens_3, tokens_7, tokens_12, mask, self.scale_8)
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
