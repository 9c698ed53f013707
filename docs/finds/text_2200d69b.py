"""A1 = f_exponential(x); (softmax(((Q·Kᵀ)/√d + log ΠA1))·conv_3(V)[init=residual])·W_O

An attention mechanism as a torch module; run as a program, this file tests itself.

    block = Attention(dim=64, heads=4)
    y = block(x, attn_mask=None, key_padding_mask=None, is_causal=False)
    y = block(x, is_causal=True)  # in a language model: hides later tokens
    y = block.decode(x, cache)  # the next tokens of a causal text; cache = {} at its start

Digest: 2200d69b4a9e60ad
Source: docs/genomes/text_2200d69b.json
Genome:
{ "graph_def": [
    {"op": "scaled_dot_product", "inputs": ["q", "k"]},
    {"op": "forget_gate", "inputs": ["v"], "params": {"form": "exponential"}},
    {"op": "decay", "inputs": [0, 1]},
    {"op": "softmax", "inputs": [2]},
    {"op": "short_conv", "inputs": ["v"], "params": {"init": "residual"}},
    {"op": "weighted_sum", "inputs": [3, 4]}
  ],
  "proj_config": {"has_wq": true, "has_wk": true, "has_wv": true, "has_wo": true}
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
    """A1 = f_exponential(x); (softmax(((Q·Kᵀ)/√d + log ΠA1))·conv_3(V)[init=residual])·W_O

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
        self.scaled_dot_product_0 = ScaledDotProduct(rank=dim // heads)
        self.forget_gate_1 = ForgetGate(dim=dim, heads=heads, form="exponential")
        self.softmax_3 = Softmax()
        self.short_conv_4 = ShortConv(heads=heads, width=dim // heads, init="residual")
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
        scores_0 = self.scaled_dot_product_0(q, k)
        gates_1 = self.forget_gate_1(v, x=x, mask=mask)
        scores_2 = scores_0 + log_decay(gates_1, gates_1.mT).to(scores_0.dtype)
        weights_3 = self.softmax_3(scores_2, mask=mask)
        tokens_4 = self.short_conv_4(v, mask=mask)
        tokens_5 = weights_3 @ tokens_4
        return self.wo(tokens_5.transpose(1, 2).flatten(2))

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
        scores_0 = self.scaled_dot_product_0(q, past_k)
        gates_1 = self.forget_gate_1(v, x=x)
        past_gates_1 = add_gates(cache, "gates_1", gates_1)
        scores_2 = scores_0 + log_decay(
            past_gates_1[:, :, start:], past_gates_1.mT
        ).to(scores_0.dtype)
        weights_3 = self.softmax_3(scores_2, mask=mask)
        v_4 = add_tokens(cache, "v_4", v)
        cache["v_4"] = v_4[:, :, -2:]
        tokens_4 = self.short_conv_4(v_4)[:, :, -n:]
        past_tokens_4 = add_tokens(cache, "tokens_4", tokens_4)
        tokens_5 = weights_3 @ past_tokens_4
        return self.wo(tokens_5.transpose(1, 2).flatten(2))


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
        1.23378657859, 0.143324274358, -1.07197309075, -2.40696882821,
        1.20297003627, 0.126406940059, -1.07057131643, -2.38761417927,
    ]
    return (out - torch.tensor(expected, dtype=torch.float64)).abs().max().item()


if __name__ == "__main__":
    difference = self_test()
    print(f"largest difference from the recorded outputs: {difference:.1e}")
    raise SystemExit(0 if difference < 1e-6 else 1)
