"""(softmax((Q·Kᵀ)/√d)·conv_4(V)[init=residual])·W_O   [1/4 H query heads, 1/4 H kv heads]

An attention mechanism as a torch module; run as a program, this file tests itself.

    block = Attention(dim=64, heads=4)
    y = block(x, attn_mask=None, key_padding_mask=None, is_causal=False)
    y = block.decode(x, cache)  # the next tokens of a causal text; cache = {} at its start

Digest: f7db6dc55f2a8c9d
Source: docs/genomes/text_f7db6dc5.json
Genome:
{ "graph_def": [
    {"op": "scaled_dot_product", "inputs": ["q", "k"]},
    {"op": "softmax", "inputs": [0]},
    {"op": "short_conv", "inputs": ["v"], "params": {"init": "residual", "kernel": 4}},
    {"op": "weighted_sum", "inputs": [1, 2]}
  ],
  "proj_config": {"has_wq": true, "has_wk": true, "has_wv": true, "has_wo": true, "q_heads": "1/4", "kv_heads": "1/4"}
}
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention


def extended(cache: dict[str, Tensor], name: str, tokens: Tensor) -> Tensor:
    """Return the cached tokens and the new ones, which the cache then holds."""
    if name in cache:
        tokens = torch.cat((cache[name], tokens), dim=2)
    cache[name] = tokens
    return tokens


def with_last(cache: dict[str, Tensor], name: str, tokens: Tensor, count: int) -> Tensor:
    """Return the tokens after up to ``count`` earlier ones; the cache then holds the last ones."""
    tokens = extended(cache, name, tokens)
    cache[name] = tokens[:, :, -count:]
    return tokens


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


class Attention(nn.Module):
    """(softmax((Q·Kᵀ)/√d)·conv_4(V)[init=residual])·W_O   [1/4 H query heads, 1/4 H kv heads]

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
        self.wq = nn.Linear(dim, self.q_heads * (dim // heads), bias=False)
        self.wk = nn.Linear(dim, self.q_heads * (dim // heads), bias=False)
        self.wv = nn.Linear(dim, self.q_heads * (dim // heads), bias=False)
        self.short_conv_2 = ShortConv(
            heads=self.q_heads, width=dim // heads, kernel=4, init="residual"
        )
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
        if is_causal and mask is not None:
            mask = mask & torch.ones(n, n, dtype=torch.bool, device=x.device).tril()
        q = self.wq(x).unflatten(-1, (self.q_heads, -1)).transpose(1, 2)
        k = self.wk(x).unflatten(-1, (self.q_heads, -1)).transpose(1, 2)
        v = self.wv(x).unflatten(-1, (self.q_heads, -1)).transpose(1, 2)
        tokens_2 = self.short_conv_2(v, mask=mask)
        tokens_3 = scaled_dot_product_attention(
            q, k, tokens_2, mask, is_causal=is_causal and mask is None
        )
        return self.wo(tokens_3.transpose(1, 2).flatten(2))

    def decode(self, x: Tensor, cache: dict[str, Tensor]) -> Tensor:
        """Return the outputs of further tokens x of a causal text, and add them to the cache.

        The cache is an empty dictionary before the first token. Its tensors are (batch, ...).
        """
        start, n = cache["k"].shape[2] if cache else 0, x.shape[1]
        mask = torch.ones(n, start + n, dtype=torch.bool, device=x.device).tril(start)
        q = self.wq(x).unflatten(-1, (self.q_heads, -1)).transpose(1, 2)
        k = self.wk(x).unflatten(-1, (self.q_heads, -1)).transpose(1, 2)
        v = self.wv(x).unflatten(-1, (self.q_heads, -1)).transpose(1, 2)
        v_2 = with_last(cache, "v_2", v, 3)
        tokens_2 = self.short_conv_2(v_2)[:, :, -n:]
        past_k = extended(cache, "k", k)
        past_tokens_2 = extended(cache, "tokens_2", tokens_2)
        tokens_3 = scaled_dot_product_attention(q, past_k, past_tokens_2, mask)
        return self.wo(tokens_3.transpose(1, 2).flatten(2))


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
        0.590834908497, -0.24698598004, -0.157377837953, -0.152030739078,
        0.615531667999, -0.275592729787, -0.125338094436, -0.186969237246,
    ]
    return (out - torch.tensor(expected, dtype=torch.float64)).abs().max().item()


if __name__ == "__main__":
    difference = self_test()
    print(f"largest difference from the recorded outputs: {difference:.1e}")
    raise SystemExit(0 if difference < 1e-6 else 1)
