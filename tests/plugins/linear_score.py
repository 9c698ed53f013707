"""A primitive: scores of positive features, as in linear attention."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nas.genome.primitives.base import Role, pair_macs, primitive
from nas.genome.primitives.factors import Factors, non_negative


@primitive(
    "elu_product",
    "query: tokens[h,w], key: tokens[h,w] -> scores[h]",
    role=Role.SCORE,
    notation="φ({query})·φ({key})ᵀ",
    source="Katharopoulos et al. 2020 (Transformers are RNNs), eq. 7",
    macs=pair_macs,
    factors=Factors(query="features", key="features"),
    sign=non_negative,
)
class EluProduct(nn.Module):
    """Dot products of positive features.

    scores_ij = φ(q_i) · φ(k_j), φ(x) = elu(x) + 1
    """

    def features(self, tokens: Float[Tensor, "b h n w"]) -> Float[Tensor, "b h n w"]:
        """φ."""
        return F.elu(tokens) + 1.0

    def forward(
        self, query: Float[Tensor, "b h q w"], key: Float[Tensor, "b h k w"]
    ) -> Float[Tensor, "b h q k"]:
        return self.features(query) @ self.features(key).transpose(-2, -1)
