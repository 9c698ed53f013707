"""Elementwise nonlinearities."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from nas.genome.primitives.base import Role, primitive
from nas.genome.primitives.factors import rectified, zero_of_first
from nas.genome.primitives.shapes import Tokens


@primitive(
    "gelu",
    "tokens: tokens[h,w] -> tokens[h,w]",
    role=Role.TRANSFORM,
    notation="GELU({tokens})",
    source="Hendrycks and Gimpel 2016, eq. 1; Evolving Attention, section 2.1",
    sign=zero_of_first,
    is_featurewise=True,
)
class Gelu(nn.Module):
    """Gaussian error linear unit, in its exact form.

    out = x Phi(x)
    """

    def forward(self, tokens: Tokens) -> Tokens:
        return F.gelu(tokens)


@primitive(
    "silu",
    "tokens: tokens[h,w] -> tokens[h,w]",
    role=Role.TRANSFORM,
    notation="SiLU({tokens})",
    source="Elfwing et al. 2017, eq. 9",
    sign=zero_of_first,
    is_featurewise=True,
)
class Silu(nn.Module):
    """Sigmoid-weighted linear unit.

    out = x sigmoid(x)
    """

    def forward(self, tokens: Tokens) -> Tokens:
        return F.silu(tokens)


@primitive(
    "relu",
    "tokens: tokens[h,w] -> tokens[h,w]",
    role=Role.TRANSFORM,
    notation="ReLU({tokens})",
    source="Nair and Hinton 2010",
    sign=rectified,
    homogeneous=("tokens",),
    is_featurewise=True,
)
class Relu(nn.Module):
    """Rectified linear unit.

    out = max(x, 0)
    """

    def forward(self, tokens: Tokens) -> Tokens:
        return F.relu(tokens)


@primitive(
    "tanh",
    "tokens: tokens[h,w] -> tokens[h,w]",
    role=Role.TRANSFORM,
    notation="tanh({tokens})",
    source="elementary",
    sign=zero_of_first,
    is_featurewise=True,
)
class Tanh(nn.Module):
    """Hyperbolic tangent.

    out = tanh(x)
    """

    def forward(self, tokens: Tokens) -> Tokens:
        return torch.tanh(tokens)
