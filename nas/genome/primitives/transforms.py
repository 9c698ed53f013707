"""Primitives that transform tokens: activations, feature maps, norms, linear maps and gates."""

from __future__ import annotations

from typing import Final

import torch
from torch import nn
from torch.nn import functional as F

from nas.genome.primitives.base import LEAST_HEADS, Role, always, primitive, token_map
from nas.genome.primitives.domains import Choice, Flag, Integer
from nas.genome.primitives.products import unit_length
from nas.genome.primitives.signs import (
    common_sign,
    keeps_zero,
    non_negative,
    rectified,
    sign_of_product,
)
from nas.genome.primitives.tensors import Elements, Inputs, Tokens


@token_map(
    "gelu",
    "GELU({tokens})",
    "Hendrycks and Gimpel 2016, eq. 1; Evolving Attention, section 2.1",
    is_featurewise=always,
)
class Gelu(nn.Module):
    """Gaussian error linear unit: x Phi(x), with the exact normal distribution function Phi."""

    def forward(self, tokens: Tokens) -> Tokens:
        return F.gelu(tokens)


@token_map("silu", "SiLU({tokens})", "Elfwing et al. 2017, eq. 9", is_featurewise=always)
class Silu(nn.Module):
    """Sigmoid-weighted linear unit: x sigmoid(x)."""

    def forward(self, tokens: Tokens) -> Tokens:
        return F.silu(tokens)


@token_map("relu", "ReLU({tokens})", "Nair and Hinton 2010", sign=rectified, is_featurewise=always)
class Relu(nn.Module):
    """Rectified linear unit: max(x, 0)."""

    def forward(self, tokens: Tokens) -> Tokens:
        return F.relu(tokens)


@token_map("tanh", "tanh({tokens})", "elementary", is_featurewise=always)
class Tanh(nn.Module):
    """Hyperbolic tangent of each feature."""

    def forward(self, tokens: Tokens) -> Tokens:
        return torch.tanh(tokens)


@token_map(
    "l2_norm",
    "{tokens}/|{tokens}|",
    "Yang et al. 2024 (DeltaNet, arXiv 2406.06484)",
    sign=common_sign,
)
class L2Norm(nn.Module):
    """Each token's features of each head, divided by their length: x / max(|x|, 1e-3)."""

    def forward(self, tokens: Tokens) -> Tokens:
        return unit_length(tokens)


@token_map(
    "elu_plus_one",
    "(elu({tokens}) + 1)",
    "Katharopoulos et al. 2020 (Transformers are RNNs)",
    sign=non_negative,
    is_featurewise=always,
)
class EluPlusOne(nn.Module):
    """Positive features: x + 1 for positive x, and exp(x) for all other x."""

    def forward(self, tokens: Tokens) -> Tokens:
        # Not elu(x) + 1, which rounds small results to multiples of 2^-8 in bfloat16.
        return F.relu(tokens) + tokens.clamp(max=0.0).exp()


@token_map(
    "feature_softmax",
    "softmax_w({tokens})",
    "Shen et al. 2021 (Efficient Attention, arXiv 1812.01243), of queries",
    sign=non_negative,
)
class FeatureSoftmax(nn.Module):
    """Softmax over the features of each token and head; the features are positive and sum to 1."""

    def forward(self, tokens: Tokens) -> Tokens:
        return torch.softmax(tokens, dim=-1)


@token_map(
    "layer_norm",
    "LN({tokens})",
    "Ba et al. 2016, eq. 4; Evolving Attention, section 2.1",
    parameters={"shift": Flag(default=True)},
)
class LayerNorm(nn.Module):
    """Layer norm of each token's features; all heads share the gain g and the shift b.

    out = (x - mean) / sqrt(var + 1e-5) * g + b
    """

    def __init__(self, width: int, *, shift: bool = True) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, bias=shift)

    def forward(self, tokens: Tokens) -> Tokens:
        return self.norm(tokens)


@token_map(
    "rms_norm",
    "RMS({tokens})",
    "Zhang and Sennrich 2019 (RMSNorm), eq. 4; span 2: Differential Transformer",
    parameters={"span": Integer(default=1, low=1, high=2)},
)
class RmsNorm(nn.Module):
    """Root mean square norm of each token's features; all heads share the gain g.

    out = x / sqrt(mean(x^2) + 1e-6) * g, over the features of ``span`` neighbouring heads together,
    with a gain of span * w numbers. The last of an odd number of heads is normalised alone.
    """

    def __init__(self, width: int, *, span: int = 1) -> None:
        super().__init__()
        self.span = span
        self.gain = nn.Parameter(torch.ones(span * width))

    def forward(self, tokens: Tokens) -> Tokens:
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


@token_map(
    "linear",
    "Linear({tokens})",
    "Evolving Attention, section 2.1",
    parameters={"init": Choice(default="random", values=("random", "identity"))},
)
class Linear(nn.Module):
    """Learned affine map of each token's features: W x + b. All heads share W (w x w) and b."""

    def __init__(self, width: int, *, init: str = "random") -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        if init == "identity":
            nn.init.eye_(self.linear.weight)
            nn.init.zeros_(self.linear.bias)

    def forward(self, tokens: Tokens) -> Tokens:
        return self.linear(tokens)


@token_map(
    "head_linear",
    "W_h {tokens}",
    "DeepSeek-AI 2024 (DeepSeek-V2, arXiv 2405.04434)",
    parameters={"least_heads": LEAST_HEADS},
)
class HeadLinear(nn.Module):
    """Learned linear map of each head's features: out_h = W_h tokens_h, with W_h: w x w.

    The result has at least the head count of the label ``least_heads``; operands with fewer heads
    are repeated.
    """

    def __init__(self, heads: int, width: int, *, least_heads: str = "one") -> None:
        super().__init__()
        self.label = least_heads
        bound = width**-0.5  # as in nn.Linear
        self.weight = nn.Parameter(torch.empty(heads, width, width).uniform_(-bound, bound))

    def forward(self, tokens: Tokens) -> Tokens:
        return tokens @ self.weight.transpose(-2, -1)


GATE_INIT: Final = Choice(default="random", values=("random", "open"))


@token_map(
    "gated_value",
    "gate({tokens})",
    "Evolving Attention, section 2.1",
    role=Role.GATE,
    parameters={"init": GATE_INIT},
    sign=common_sign,
)
class GatedValue(nn.Module):
    """Features multiplied by a gate computed from the same token: v * sigmoid(W v + b).

    All heads share W and b. Gates start near 1/2, or near 1 (b = 4) if ``init`` is ``open``.
    """

    def __init__(self, width: int, *, init: str = "random") -> None:
        super().__init__()
        self.gate = nn.Linear(width, width)
        if init == "open":
            nn.init.constant_(self.gate.bias, 4.0)

    def forward(self, tokens: Tokens) -> Tokens:
        return tokens * torch.sigmoid(self.gate(tokens))


@token_map(
    "output_gate",
    "{tokens} ⊙ σ(W x)",
    "Qiu et al. 2025 (Gated Attention, arXiv 2505.06708), eq. 5",
    role=Role.GATE,
    parameters={"per": Choice(default="feature", values=("feature", "head")), "init": GATE_INIT},
    sign=common_sign,
    is_featurewise=lambda params: params["per"] == "feature",
)
class OutputGate(nn.Module):
    """Features multiplied by a gate computed from the block's input x.

    out_i = tokens_i * sigmoid(W_h x_i), elementwise, with a learned map W_h for each head h, and a
    gate ``per`` feature or head. Gates start near 1/2, or near 1 (bias 4) if ``init`` is ``open``.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        width: int,
        bias: bool = False,
        *,
        per: str = "feature",
        init: str = "random",
    ) -> None:
        super().__init__()
        self.heads = heads
        gates = heads if per == "head" else heads * width
        self.gate = nn.Linear(dim, gates, bias=bias or init == "open")
        if init == "open":
            nn.init.constant_(self.gate.bias, 4.0)

    def forward(self, tokens: Tokens, x: Inputs) -> Tokens:
        gate = self.gate(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return tokens * torch.sigmoid(gate)


@primitive(
    "add",
    "first: tokens[h,w], second: tokens[h,w] -> tokens[h,w]",
    "first: scores[h], second: scores[h] -> scores[h]",
    "first: weights[h], second: weights[h] -> weights[h]",
    role=(Role.TRANSFORM, Role.ADJUST, Role.ADJUST),
    notation="({first} + {second})",
    source="Evolving Attention, section 2.1",
    commutes=True,
    sign=common_sign,
    is_featurewise=always,
)
class Add(nn.Module):
    """Sum of two tensors of one kind. A key that either score excludes is excluded."""

    def forward(self, first: Elements, second: Elements) -> Elements:
        return first + second


@primitive(
    "multiply",
    "first: tokens[h,w], second: tokens[h,w] -> tokens[h,w]",
    "first: weights[h], second: weights[h] -> weights[h]",
    role=(Role.TRANSFORM, Role.ADJUST),
    notation="({first} ⊙ {second})",
    source="Evolving Attention, section 2.1",
    commutes=True,
    sign=sign_of_product,
    is_featurewise=always,
)
class Multiply(nn.Module):
    """Elementwise product of two tensors of one kind.

    Scores are not accepted: the score -inf of an excluded key times 0 would be NaN.
    """

    def forward(self, first: Elements, second: Elements) -> Elements:
        return first * second


@token_map(
    "swish_gate",
    "{tokens} ⊙ SiLU(W x)",
    "Sun et al. 2023 (RetNet, arXiv 2307.08621)",
    role=Role.GATE,
    is_featurewise=always,
    sign=keeps_zero,
)
class SwishGate(nn.Module):
    """Features multiplied by a gate of the block's input x, which may be negative.

    out_i = tokens_i * silu(W_h x_i), elementwise, with a learned map W_h for each head h
    """

    def __init__(self, dim: int, heads: int, width: int, bias: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.gate = nn.Linear(dim, heads * width, bias=bias)

    def forward(self, tokens: Tokens, x: Inputs) -> Tokens:
        gate = self.gate(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return tokens * F.silu(gate)


@token_map(
    "model_norm",
    "RMS_d({tokens})",
    "Zhang and Sennrich 2019 (RMSNorm), eq. 4, over the features of all heads",
)
class ModelNorm(nn.Module):
    """Root mean square norm over the features of all heads of a token, with a gain g for each.

    out = x / sqrt(mean(x^2) + 1e-6) * g
    """

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(heads, 1, width))

    def forward(self, tokens: Tokens) -> Tokens:
        exact = tokens.to(torch.promote_types(tokens.dtype, torch.float32))
        size = (exact.square().mean(dim=(1, 3), keepdim=True) + 1e-6).sqrt()
        return (exact / size * self.gain).to(tokens.dtype)
