"""Fast forms of the scores that a small network gives every pair; see pair_scores.py."""

from __future__ import annotations

from torch import Tensor

from nas.kernels import faster
from nas.kernels.pair_scores import fast_sum_layers, fast_sum_units, goes_by_pieces, sum_pairs
from nas.primitives.additive_attention_score import AdditiveAttentionScore
from nas.primitives.neural_attention import NeuralAttention
from nas.primitives.neural_attention_authors import NeuralAttentionAuthors
from nas.primitives.qana import Qana
from nas.primitives.shapes import Key, Query, Scores


@faster
class FastAdditiveAttentionScore(AdditiveAttentionScore):
    """Additive scores, by pieces where units are too many to keep."""

    def forward(self, query: Query, key: Key) -> Scores:
        return fast_sum_units(*self.units(query, key), "tanh")


@faster
class FastNeuralAttention(NeuralAttention):
    """Neural Attention, unit by unit in cache where that is faster."""

    def forward(self, query: Query, key: Key) -> Scores:
        return fast_sum_units(*self.units(query, key), self.activation)


@faster
class FastNeuralAttentionAuthors(NeuralAttentionAuthors):
    """Both layers of a piece of the pairs in cache."""

    def forward(self, query: Query, key: Key) -> Scores:
        layers = self.second.weight, self.second.bias, self.third.weight, self.third.bias
        return fast_sum_layers(*self.halves(query, key), *layers)


@faster
class FastQana(Qana):
    """QANA, unit by unit in cache where that is faster."""

    def score(self, query: Query, key: Key, units: tuple[Tensor, ...]) -> Scores:
        rows, keys = units[0], key.shape[2]
        numbers = 2 * units[1].numel() * keys
        # Wide keys cost more multiplications than memory; few pairs, calls.
        is_faster = keys >= 4 * rows.shape[-1] and numbers >= 2**20
        if not goes_by_pieces(key, numbers, is_faster):
            return super().score(query, key, units)
        seen, rows, out, bias, shift = self.gated(key, units)
        scores = sum_pairs(bias, seen, rows, out, shift, self.activation)
        return scores + (query * self.skip_scale) @ key.mT if self.skip else scores
