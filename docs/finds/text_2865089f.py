"""(softmax((RoPE(conv_4(Q)[init=identity])·RoPE(K)ᵀ)/√d)·V ⊙ σ(W x))·W_O   [1/2 H query heads]

An attention mechanism as a torch module; run as a program, this file tests itself.

    block = Attention(dim=64, heads=4)
    y = block(x, attn_mask=None, key_padding_mask=None, is_causal=False)

Digest: 2865089f49f95697
Source: docs/genomes/text_2865089f.json
Genome:
{ "graph_def": [
    {"op": "short_conv", "inputs": ["q"], "params": {"init": "identity", "kernel": 4}},
    {"op": "rope", "inputs": [0]},
    {"op": "rope", "inputs": ["k"]},
    {"op": "scaled_dot_product", "inputs": [1, 2]},
    {"op": "softmax", "inputs": [3]},
    {"op": "weighted_sum", "inputs": [4, "v"]},
    {"op": "output_gate", "inputs": [5]}
  ],
  "proj_config": {"has_wq": true, "has_wk": true, "has_wv": true, "has_wo": true, "q_heads": "1/2"}
}
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


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


def key_width(head_dim: int) -> int:
    """Return the key width for a width label, such as 32 for "1/2" of a head width of 64.

    Fractions of the head width are rounded to an even number, and are at least 2.
    """
    return head_dim
    top, bottom = (int(part) for part in "all".split("/"))
    return max(2, 2 * round(top * head_dim / (2 * bottom)))


def rotate(features: Tensor, start: int | Tensor = 0, base: float = 10000.0) -> Tensor:
    """Rotate pairs of features by angles proportional to the token's position.

    The first token has position ``start``. Features i and i + w/2 form pair i. The angle of pair i
    at position t is t / base^(2i/w), in radians. All features on the axes ``*r`` rotate by the
    angle of their token.

    Source: Su et al. 2021 (RoFormer), eq. 15 and 34.
    """
    length, width = features.shape[2], features.shape[-1]
    # Angles in float32 at least: bfloat16 cannot represent all positions above 256.
    exact = torch.promote_types(features.dtype, torch.float32)
    pairs = torch.arange(width // 2, device=features.device, dtype=exact)
    position = torch.arange(length, device=features.device, dtype=exact) + start
    angle = position[:, None] * base ** (-2.0 * pairs / width)
    angle = angle.reshape(length, *(1,) * (features.dim() - 4), width // 2)
    cos, sin = angle.cos().to(features.dtype), angle.sin().to(features.dtype)
    first, second = features[..., : width // 2], features[..., width // 2 :]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class Rope(nn.Module):
    """Rotary position embedding: dot products depend on the difference of positions only.

    out_t = R_t x_t, with rotations R_t such that (R_i q) · (R_j k) = q · R_{j-i} k
    """

    def __init__(self, width: int, *, base: float = 10000.0) -> None:
        super().__init__()
        self.rotated = key_width(width)
        self.base = base
        if self.rotated % 2:
            raise ValueError(f"rope: the width is {width}; expected an even number")

    def forward(self, tokens: Tensor, start: int | Tensor = 0) -> Tensor:
        first, rest = tokens[..., : self.rotated], tokens[..., self.rotated :]
        return torch.cat((rotate(first, start, self.base), rest), dim=-1)


class OutputGate(nn.Module):
    """Features multiplied by a gate computed from the block's input x.

    out_i = tokens_i * sigmoid(W_h x_i), elementwise, with a learned map W_h for each head h
    """

    def __init__(self, dim: int, heads: int, width: int) -> None:
        super().__init__()
        self.heads = heads
        gates = heads * width
        self.gate = nn.Linear(dim, gates, bias=False)

    def forward(self, tokens: Tensor, x: Tensor) -> Tensor:
        gate = self.gate(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return tokens * torch.sigmoid(gate)


class Attention(nn.Module):
    """(softmax((RoPE(conv_4(Q)[init=identity])·RoPE(K)ᵀ)/√d)·V ⊙ σ(W x))·W_O   [1/2 H query
    heads]

    (batch, tokens, dim) to (batch, tokens, dim).
    """

    def __init__(self, dim: int = 64, heads: int = 4) -> None:
        super().__init__()
        if dim < 1 or heads < 1 or dim % heads:
            raise ValueError(f"dim {dim} and heads {heads}: heads must divide dim")
        self.dim, self.heads = dim, heads
        if heads > 2 and heads % 2:
            raise ValueError(f"1/2 of {heads} heads is no whole number; expected heads that divide")
        self.q_heads = max(1, heads // 2)
        self.wq = nn.Linear(dim, self.q_heads * (dim // heads), bias=False)
        self.wk = nn.Linear(dim, dim, bias=False)
        self.wv = nn.Linear(dim, dim, bias=False)
        self.short_conv_0 = ShortConv(heads=self.q_heads, width=dim // heads, kernel=4)
        self.rope_1 = Rope(width=dim // heads)
        self.rope_2 = Rope(width=dim // heads)
        self.output_gate_6 = OutputGate(dim=dim, heads=heads, width=dim // heads)
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
        q = self.wq(x).unflatten(-1, (self.q_heads, -1)).transpose(1, 2)
        k = self.wk(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        v = self.wv(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        tokens_0 = self.short_conv_0(q, mask=mask)
        tokens_1 = self.rope_1(tokens_0)
        tokens_2 = self.rope_2(k)
        tokens_5 = F.scaled_dot_product_attention(
            tokens_1.repeat_interleave(self.heads // tokens_1.shape[1], dim=1), tokens_2, v, mask
        )
        tokens_6 = self.output_gate_6(tokens_5, x=x)
        return self.wo(tokens_6.transpose(1, 2).flatten(2))


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
        0.786824234612, 0.822204954349, 0.324376810348, -0.0860478431285,
        0.777073117999, 0.790697832639, 0.279345379135, -0.13283846492,
    ]
    return (out - torch.tensor(expected, dtype=torch.float64)).abs().max().item()


if __name__ == "__main__":
    difference = self_test()
    print(f"largest difference from the recorded outputs: {difference:.1e}")
    raise SystemExit(0 if difference < 1e-6 else 1)
