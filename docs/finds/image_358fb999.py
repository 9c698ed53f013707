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
from torch.nn.functional import scaled_dot_product_attention


class Uniform(nn.Module):
    """Equal weights 1 / n for the n visible keys, so that values are averaged.

    ``heads`` is the label of the smallest head count of the weights, which the normal form of a
    genome sets where it replaces scores by a stream with fewer heads.
    """

    def __init__(self, *, heads: str = "one") -> None:
        super().__init__()
        self.label = heads

    def forward(self, operand: Tensor, x: Tensor, mask: Tensor | None = None) -> Tensor:
        # The number of queries is that of x: there may be more keys than queries.
        shape = (*operand.shape[:2], x.shape[1], operand.shape[2])
        if mask is None:
            return operand.new_full(shape, 1.0 / shape[-1])
        visible = mask.expand(shape).to(operand.dtype)
        return visible / visible.sum(dim=-1, keepdim=True).clamp(min=1)


class ScaledDotProduct(nn.Module):
    """Dot products of queries and keys: scores_ij = q_i · k_j / sqrt(r), r = ``rank``.

    r is the operands' width; for operands of model width, as in Patterns, it is the head width.
    """

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.scale = rank**-0.5

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return query @ key.transpose(-2, -1) * self.scale


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
        self.wq = nn.Linear(dim, heads * key_width, bias=False)
        self.wk = nn.Linear(dim, heads * key_width, bias=False)
        self.wv = nn.Linear(dim, dim, bias=False)
        self.uniform_0 = Uniform()
        self.scaled_dot_product_1 = ScaledDotProduct(rank=key_width)
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
        weights_0 = self.uniform_0(v, x=x, mask=mask)
        scores_1 = self.scaled_dot_product_1(q, k)
        weights_2 = self.softmax_sink_2(scores_1, mask=mask)
        weights_3 = self.difference_3(weights_0, weights_2)
        tokens_4 = weights_3 @ v
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
