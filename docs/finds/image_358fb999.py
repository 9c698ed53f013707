"""(uniform - λsoftmax_sink((Q·Kᵀ)/√d))·V   [d_k = 1/4 d_h, first layer only]

An attention mechanism as a torch module; run as a program, this file tests itself.

    block = Attention(dim=64, heads=4)
    y = block(x, attn_mask=None, key_padding_mask=None, is_causal=False)

A hybrid's mechanism: first.
The attention of a model's layers:

    blocks = [attention_of_layer(layer, dim=64, heads=4) for layer in range(depth)]

Digest: 358fb999f4297236
Source: docs/genomes/image_358fb999.json
Genome:
{ "graph_def": [
    {"op": "uniform", "inputs": ["v"]},
    {"op": "scaled_dot_product", "inputs": ["q", "k"]},
    {"op": "softmax_sink", "inputs": [1]},
    {"op": "difference", "inputs": [0, 2]},
    {"op": "weighted_sum", "inputs": [3, "v"]}
  ],
  "proj_config": {"has_wq": true, "has_wk": true, "has_wv": true, "has_wo": false, "qk_dim": "1/4"},
  "placement": "first"
}
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention


def past_keys(query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return ``mask`` with later keys hidden from each query."""
    shape = (query.shape[2], key.shape[2])
    past = torch.ones(shape, dtype=torch.bool, device=query.device).tril()
    return past if mask is None else mask & past


def visible_tokens(tokens: Tensor, mask: Tensor | None, is_causal: bool) -> tuple[Tensor, Tensor]:
    """Return the tokens, with zeros for hidden ones, and the number of visible ones at each query.

    The number, in float32 or float64, is at least 1. The mask is the same for every query.
    """
    exact = torch.promote_types(tokens.dtype, torch.float32)
    shape = 1, 1, tokens.shape[2], 1
    kept = tokens.new_ones(shape, dtype=exact) if mask is None else mask.mT.to(exact)
    count = kept.cumsum(dim=-2) if is_causal else kept.sum(dim=-2, keepdim=True)
    return tokens if mask is None else tokens * kept.to(tokens.dtype), count.clamp(min=1)


def visible_mean(values: Tensor, mask: Tensor | None, is_causal: bool = False) -> Tensor:
    """Return the mean of the values that each token may see; zeros if the token sees none.

    ``is_causal`` hides later values in addition to ``mask``.
    """
    # In float32 at least: 16 bits are too few for sums over long sequences.
    exact = values.to(torch.promote_types(values.dtype, torch.float32))
    if mask is not None and mask.shape[-2] != 1:
        weights = (past_keys(values, values, mask) if is_causal else mask).to(exact.dtype)
        weights = weights / weights.sum(dim=-1, keepdim=True).clamp(min=1)
        return weights.to(values.dtype) @ values
    exact, count = visible_tokens(exact, mask, is_causal)
    if is_causal:
        return (exact.cumsum(dim=2) / count).to(values.dtype)
    return (exact.sum(dim=2, keepdim=True) / count).to(values.dtype).expand_as(values)


def fused_attention(
    query: Tensor,
    key: Tensor,
    values: Tensor,
    mask: Tensor | None,
    is_causal: bool,
    scale: float,
    enable_gqa: bool = False,
) -> Tensor:
    """Return softmax(scale query·key^T)·values by torch's fused attention.

    Fused kernels need one width of all three tensors, on CUDA a multiple of 8. Narrower tensors are
    padded with zeros, since torch computes other shapes explicitly (on a CPU in 2 to 6 times the
    time at 1,024 keys). ``mask`` must be None if ``is_causal``.
    """
    width = values.shape[-1]
    widest = max(width, key.shape[-1])
    widest += -widest % 8 if query.is_cuda else 0
    query, key, values = (
        x if x.shape[-1] == widest else F.pad(x, (0, widest - x.shape[-1]))
        for x in (query, key, values)
    )
    out = F.scaled_dot_product_attention(
        query, key, values, mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
    )
    return out if out.shape[-1] == width else out[..., :width]


def with_features(
    query: Tensor,
    key: Tensor,
    values: Tensor,
    mask: Tensor | None,
    scale: float = 1.0,
    is_causal: bool = False,
    *,
    bias: Tensor | None = None,
    sink: Tensor | None = None,
) -> Tensor:
    """Return softmax(scale query·key^T + bias_j)·values, by torch's fused attention.

    A bias is a feature of the keys. ``sink`` is the score of an additional first key, whose value
    is zero. ``is_causal`` hides later keys in addition to ``mask``.
    """
    mask = mask if mask is None or not is_causal else past_keys(query, key, mask)
    is_causal = is_causal and mask is None
    if sink is not None:
        first = sink.view(1, -1, 1, 1).expand(key.shape[0], -1, 1, 1)
        rest = key.new_zeros(1).expand(*key.shape[:3], 1) if bias is None else bias
        bias = torch.cat((first.to(rest.dtype), rest), dim=2)
        key, values = F.pad(key, (0, 0, 1, 0)), F.pad(values, (0, 0, 1, 0))
        # A first query, which only the sink precedes, lets causality begin at the same key.
        query = F.pad(query, (0, 0, 1, 0)) if is_causal else query
        mask = None if mask is None else F.pad(mask, (1, 0), value=True)
    if bias is not None:
        query, scale = F.pad(query * scale, (0, 1), value=1.0), 1.0
        key = torch.cat((key, bias.to(key.dtype)), dim=-1)
    out = fused_attention(query, key, values, mask, is_causal, scale)
    return out[:, :, 1:] if sink is not None and is_causal else out


def hide(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Set the scores of hidden keys to -inf."""
    return scores if mask is None else scores.masked_fill(~mask, -torch.inf)


class SoftmaxSink(nn.Module):
    """Softmax over the visible keys and one additional key, with a learned score and value zero.

    weights_ij = exp(scores_ij) / (exp(t_h) + sum_k exp(scores_ik)), with t_h initially zero
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.sink = nn.Parameter(torch.zeros(heads))

    def forward(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        first = self.sink.to(scores.dtype).view(-1, 1, 1).expand(*scores.shape[:3], 1)
        return torch.softmax(torch.cat((first, hide(scores, mask)), dim=-1), dim=-1)[..., 1:]


class Difference(nn.Module):
    """Weights minus other weights times a learned factor of each head, initially 0.8."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.full((heads,), 0.8))

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return first - self.factor.to(first.dtype).view(-1, 1, 1) * second


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


class Attention(nn.Module):
    """(uniform - λsoftmax_sink((Q·Kᵀ)/√d))·V   [d_k = 1/4 d_h, first layer only]

    (batch, tokens, dim) to (batch, tokens, dim).
    """

    def __init__(self, dim: int = 64, heads: int = 4) -> None:
        super().__init__()
        if dim < 1 or heads < 1 or dim % heads:
            raise ValueError(f"dim {dim} and heads {heads}: heads must divide dim")
        self.dim, self.heads = dim, heads
        key_width = min(dim // heads, max(2, 2 * round(dim // heads / 8)))
        self.scale_1 = (key_width) ** -0.5
        self.wq = nn.Linear(dim, heads * key_width, bias=False)
        self.wk = nn.Linear(dim, heads * key_width, bias=False)
        self.wv = nn.Linear(dim, dim, bias=False)
        self.softmax_sink_2 = SoftmaxSink(heads=heads)
        self.difference_3 = Difference(heads=heads)

    def forward(
        self,
        x: Tensor,
        attn_mask: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Masks: attn_mask True where allowed, key_padding_mask True at padding."""
        mask = attn_mask
        if key_padding_mask is not None:
            kept = ~key_padding_mask[:, None, None]
            mask = kept if mask is None else mask & kept
        q = self.wq(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k = self.wk(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        v = self.wv(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        sums_5 = visible_mean(v, mask, is_causal=is_causal)
        sums_6 = with_features(
            q, k, v, mask, self.scale_1, is_causal=is_causal, sink=self.softmax_sink_2.sink
        )
        tokens_4 = self.difference_3(sums_5, sums_6)
        return tokens_4.transpose(1, 2).flatten(2)


def attention_of_layer(layer: int, dim: int = 64, heads: int = 4) -> nn.Module:
    """Return the attention of a model's layer, numbered from 0."""
    has_mechanism = layer < 1
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
        -0.0151595711491, 0.112854064999, 0.123993427369, -0.297029298216,
        -0.0233409219326, 0.105134988175, 0.118753346035, -0.2984213363,
    ]
    return (out - torch.tensor(expected, dtype=torch.float64)).abs().max().item()


if __name__ == "__main__":
    difference = self_test()
    print(f"largest difference from the recorded outputs: {difference:.1e}")
    raise SystemExit(0 if difference < 1e-6 else 1)
