"""Fast forms of the scores that a small network gives every pair; see pair_scores.py."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from nas.kernels import faster
from nas.kernels.hidden_units import UnitScores
from nas.kernels.pair_layers import LayerScores
from nas.kernels.pair_scores import score_pairs
from nas.kernels.query_network import NetworkScores
from nas.primitives.additive_attention_score import AdditiveAttentionScore
from nas.primitives.neural_attention import NeuralAttention
from nas.primitives.neural_attention_authors import NeuralAttentionAuthors
from nas.primitives.qana import Qana


@faster
class FastAdditiveAttentionScore(AdditiveAttentionScore):
    """Additive scores, unit by unit in cache where that is faster."""

    def forward(
        self, query: Float[Tensor, "b h q w"], key: Float[Tensor, "b h k w"]
    ) -> Float[Tensor, "b h q k"]:
        score, operands = self.pair_scores(query, key)
        return score_pairs(score, *operands)

    def pair_scores(
        self, query: Float[Tensor, "b h q w"], key: Float[Tensor, "b h k w"]
    ) -> tuple[UnitScores, tuple[Tensor, ...]]:
        """The scores as ``attend_pairs`` takes them."""
        units = self.query_map(query), self.key_map(key)
        weight = self.out.weight.squeeze(0)
        return UnitScores("tanh"), (*units, weight, weight.new_zeros(()))


@faster
class FastNeuralAttention(NeuralAttention):
    """Neural Attention, unit by unit in cache where that is faster."""

    def forward(
        self, query: Float[Tensor, "b h q w"], key: Float[Tensor, "b h k w"]
    ) -> Float[Tensor, "b h q k"]:
        score, operands = self.pair_scores(query, key)
        return score_pairs(score, *operands)

    def pair_scores(
        self, query: Float[Tensor, "b h q w"], key: Float[Tensor, "b h k w"]
    ) -> tuple[UnitScores, tuple[Tensor, ...]]:
        """The scores as ``attend_pairs`` takes them."""
        return UnitScores(self.activation), self.units(query, key)


@faster
class FastNeuralAttentionAuthors(NeuralAttentionAuthors):
    """Both layers of a piece of the pairs in cache."""

    def forward(
        self, query: Float[Tensor, "b h q w"], key: Float[Tensor, "b h k w"]
    ) -> Float[Tensor, "b h q k"]:
        score, operands = self.pair_scores(query, key)
        return score_pairs(score, *operands)

    def pair_scores(
        self, query: Float[Tensor, "b h q w"], key: Float[Tensor, "b h k w"]
    ) -> tuple[LayerScores, tuple[Tensor, ...]]:
        """The scores as ``attend_pairs`` takes them."""
        second, third = self.second, self.third
        layers = second.weight, second.bias, third.weight, third.bias
        return LayerScores(), (*self.halves(query, key), *layers)


@faster
class FastQana(Qana):
    """QANA, unit by unit in cache where that is faster."""

    def score(
        self,
        query: Float[Tensor, "b h q w"],
        key: Float[Tensor, "b h k w"],
        units: tuple[Tensor, ...],
    ) -> Float[Tensor, "b h q k"]:
        score, operands = self._network(query, key, units)
        return score_pairs(score, *operands)

    def pair_scores(
        self,
        query: Float[Tensor, "b h q w"],
        key: Float[Tensor, "b h k w"],
        x: Float[Tensor, "b q d"],
        start: int = 0,
    ) -> tuple[NetworkScores, tuple[Tensor, ...]]:
        """The scores as ``attend_pairs`` takes them."""
        units = self.units(x)
        if self.rope:
            query, key, units = self.turned(query, key, units, start)
        return self._network(query, key, units)

    def _network(
        self,
        query: Float[Tensor, "b h q w"],
        key: Float[Tensor, "b h k w"],
        units: tuple[Tensor, ...],
    ) -> tuple[NetworkScores, tuple[Tensor, ...]]:
        """As ``score``, a kind of score with its operands."""
        scale = self.skip_scale if self.skip else 0.0
        seen, *rest = self.gated(key, units)
        if not scale:  # products over nothing, which neither sees
            query, key = query[..., :0].detach(), key[..., :0].detach()
        rows, out, bias, shift = rest
        operands = query, key, rows, seen, out, bias, shift
        return NetworkScores(scale, self.activation), operands
