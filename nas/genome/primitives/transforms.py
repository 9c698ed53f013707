"""Primitives that transform tokens: activations, feature maps, norms, linear maps and gates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nas.genome import LABELS
from nas.genome.primitives.base import Role, primitive
from nas.genome.primitives.domains import Choice, Flag, Integer
from nas.genome.primitives.products import unit_length
from nas.genome.primitives.shapes import Tokens
from nas.genome.primitives.signs import (
    common_sign,
    keeps_zero,
    non_negative,
    rectified,
    sign_of_product,
)


def _map_of_tokens(
    name: str, *, role: Role = Role.TRANSFORM, **declared: Any
) -> Callable[[type[nn.Module]], type[nn.Module]]:
    return primitive(name, "tokens: tokens[h,w] -> tokens[h,w]", role=role, **declared)


@_map_of_tokens(
    "gelu",
    notation="GELU({tokens})",
    source="Hendrycks and Gimpel 2016, eq. 1; Evolving Attention, section 2.1",
    is_featurewise=lambda params: True,
)
class Gelu(nn.Module):
    """Gaussian error linear unit: x Phi(x), with the exact normal distribution function Phi."""

    def forward(self, tokens: Tokens) -> Tokens:
        return F.gelu(tokens)


@_map_of_tokens(
    "silu",
    notation="SiLU({tokens})",
    source="Elfwing et al. 2017, eq. 9",
    is_featurewise=lambda params: True,
)
class Silu(nn.Module):
    """Sigmoid-weighted linear unit: x sigmoid(x)."""

    def forward(self, tokens: Tokens) -> Tokens:
        return F.silu(tokens)


@_map_of_tokens(
    "relu",
    notation="ReLU({tokens})",
    source="Nair and Hinton 2010",
    sign=rectified,
    is_featurewise=lambda params: True,
)
class Relu(nn.Module):
    """Rectified linear unit: max(x, 0)."""

    def forward(self, tokens: Tokens) -> Tokens:
        return F.relu(tokens)


@_map_of_tokens(
    "tanh",
    notation="tanh({tokens})",
    source="elementary",
    is_featurewise=lambda params: True,
)
class Tanh(nn.Module):
    """Hyperbolic tangent of each feature."""

    def forward(self, tokens: Tokens) -> Tokens:
        return torch.tanh(tokens)


@_map_of_tokens(
    "l2_norm",
    notation="{tokens}/|{tokens}|",
    source="Yang et al. 2024 (DeltaNet, arXiv 2406.06484)",
    sign=common_sign,
)
class L2Norm(nn.Module):
    """Each token's features of each head, divided by their Euclidean length.

    out = x / max(|x|, 1e-3), which has unit length unless x is nearly zero
    """

    def forward(self, tokens: Tokens) -> Tokens:
        return unit_length(tokens)


@_map_of_tokens(
    "elu_plus_one",
    notation="(elu({tokens}) + 1)",
    source="Katharopoulos et al. 2020 (Transformers are RNNs)",
    sign=non_negative,
    is_featurewise=lambda params: True,
)
class EluPlusOne(nn.Module):
    """Positive features: x + 1 for positive x, and exp(x) for all other x."""

    def forward(self, tokens: Tokens) -> Tokens:
        # Not elu(x) + 1, which rounds small results to multiples of 2^-8 in bfloat16.
        return F.relu(tokens) + tokens.clamp(max=0.0).exp()


@_map_of_tokens(
    "feature_softmax",
    notation="softmax_w({tokens})",
    source="Shen et al. 2021 (Efficient Attention, arXiv 1812.01243), of queries",
    sign=non_negative,
)
class FeatureSoftmax(nn.Module):
    """Softmax over the features of each token and head; the features are positive and sum to 1."""

    def forward(self, tokens: Tokens) -> Tokens:
        return torch.softmax(tokens, dim=-1)


@_map_of_tokens(
    "layer_norm",
    notation="LN({tokens})",
    source="Ba et al. 2016, eq. 4; Evolving Attention, section 2.1",
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


@_map_of_tokens(
    "rms_norm",
    notation="RMS({tokens})",
    source="Zhang and Sennrich 2019 (RMSNorm), eq. 4; span 2: Differential Transformer",
    parameters={"span": Integer(default=1, low=1, high=2)},
)
class RmsNorm(nn.Module):
    """Root mean square norm of each token's features; all heads share the gain g.

    out = x / sqrt(mean(x^2) + 1e-6) * g

    Args:
        span: number of neighbouring heads whose features are normalised together, with a gain of
            span * w numbers. The last of an odd number of heads is normalised alone.
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


@_map_of_tokens(
    "linear",
    notation="Linear({tokens})",
    source="Evolving Attention, section 2.1",
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


@_map_of_tokens(
    "head_linear",
    notation="W_h {tokens}",
    source="DeepSeek-AI 2024 (DeepSeek-V2, arXiv 2405.04434)",
    parameters={
        "least_heads": Choice(default="one", values=tuple(reversed(LABELS["q_heads"]))),
    },
    least_heads="least_heads",
)
class HeadLinear(nn.Module):
    """Learned linear map of each head's features, with one matrix W_h (w x w) for each head h.

    out_h = W_h tokens_h. Operands with fewer heads than the result are repeated.

    Args:
        least_heads: label of the smallest head count of the result.
    """

    def __init__(self, heads: int, width: int, *, least_heads: str = "one") -> None:
        super().__init__()
        self.label = least_heads
        bound = width**-0.5  # as in nn.Linear
        self.weight = nn.Parameter(torch.empty(heads, width, width).uniform_(-bound, bound))

    def forward(self, tokens: Tokens) -> Tokens:
        return tokens @ self.weight.transpose(-2, -1)


GATE_INIT: Final = Choice(default="random", values=("random", "open"))


@_map_of_tokens(
    "gated_value",
    role=Role.GATE,
    notation="gate({tokens})",
    source="Evolving Attention, section 2.1",
    parameters={"init": GATE_INIT},
    sign=common_sign,
)
class GatedValue(nn.Module):
    """Features multiplied by a gate computed from the same token: v * sigmoid(W v + b).

    All heads share W and b.

    Args:
        init: ``random`` for gates that start near 1/2, or ``open`` for b = 4 and gates near 1.
    """

    def __init__(self, width: int, *, init: str = "random") -> None:
        super().__init__()
        self.gate = nn.Linear(width, width)
        if init == "open":
            nn.init.constant_(self.gate.bias, 4.0)

    def forward(self, tokens: Tokens) -> Tokens:
        return tokens * torch.sigmoid(self.gate(tokens))


@_map_of_tokens(
    "output_gate",
    role=Role.GATE,
    notation="{tokens} ⊙ σ(W x)",
    source="Qiu et al. 2025 (Gated Attention, arXiv 2505.06708), eq. 5",
    parameters={
        "per": Choice(default="feature", values=("feature", "head")),
        "init": GATE_INIT,
    },
    sign=common_sign,
    is_featurewise=lambda params: params["per"] == "feature",
)
class OutputGate(nn.Module):
    """Features multiplied by a gate computed from the block's input x.

    out_i = tokens_i * sigmoid(W_h x_i), elementwise, with a learned map W_h for each head h

    Args:
        per: whether each ``feature`` or each ``head`` has its own gate.
        init: ``random`` for gates that start near 1/2, or ``open`` for a bias of 4.
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

    def forward(self, tokens: Tokens, x: Float[Tensor, "b n d"]) -> Tokens:
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
    is_featurewise=lambda params: True,
)
class Add(nn.Module):
    """Sum of two tensors of one kind. A key that either score excludes is excluded."""

    def forward(
        self, first: Float[Tensor, "b h n m"], second: Float[Tensor, "b h n m"]
    ) -> Float[Tensor, "b h n m"]:
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
    is_featurewise=lambda params: True,
)
class Multiply(nn.Module):
    """Elementwise product of two tensors of one kind.

    Scores are not accepted: the score -inf of an excluded key times 0 would be NaN.
    """

    def forward(
        self, first: Float[Tensor, "b h n m"], second: Float[Tensor, "b h n m"]
    ) -> Float[Tensor, "b h n m"]:
        return first * second


@_map_of_tokens(
    "swish_gate",
    role=Role.GATE,
    notation="{tokens} ⊙ SiLU(W x)",
    source="Sun et al. 2023 (RetNet, arXiv 2307.08621)",
    is_featurewise=lambda params: True,
    sign=keeps_zero,
)
class SwishGate(nn.Module):
    """Features multiplied by a gate that is computed from the block's input x and may be negative.

    out_i = tokens_i * silu(W_h x_i), elementwise, with a learned map W_h for each head h
    """

    def __init__(self, dim: int, heads: int, width: int, bias: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.gate = nn.Linear(dim, heads * width, bias=bias)

    def forward(self, tokens: Tokens, x: Float[Tensor, "b n d"]) -> Tokens:
        gate = self.gate(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return tokens * F.silu(gate)


@_map_of_tokens(
    "model_norm",
    notation="RMS_d({tokens})",
    source="Zhang and Sennrich 2019 (RMSNorm), eq. 4, over the features of all heads",
)
class ModelNorm(nn.Module):
    """Root mean square norm over the features of all heads of a token, with a gain for each.

    out = x / sqrt(mean(x^2) + 1e-6) * g
    """

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(heads, 1, width))

    def forward(self, tokens: Tokens) -> Tokens:
        exact = tokens.to(torch.promote_types(tokens.dtype, torch.float32))
        size = (exact.square().mean(dim=(1, 3), keepdim=True) + 1e-6).sqrt()
        return (exact / size * self.gain).to(tokens.dtype)
