"""Models on tokens: a causal one with outputs at tokens, and a classifier of whole texts.

    x_t = E[token_t] + P_t   (+ roll(E[token_{t-1}]) with a token shift)
    causal: answer_t = W · norm(layers(x))_t        text: answer = W · mean_t norm(layers(x))_t

``roll`` shifts the features by one place, so that a token and its predecessor stay distinct.
Zoology gives every mixer a short convolution instead; without either, standard attention must first
learn to read the previous token, which takes longer than the training of recall.
"""

from __future__ import annotations

from typing import Final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from nas.tasks.base import MakeAttention, ModelTask
from nas.tasks.layers import Transformer, derive_seed, seeded

PADDING: Final = 0
"""The token that pads short texts."""


class _Embedded(Transformer):
    """Layers on embedded tokens with learned positions.

    Args:
        task, attention, seed: see ``Transformer``.
        num_tokens: size of the vocabulary.
        num_classes: width of the output.
        read: the tokens with an output.
        token_shift: add each token's predecessor, see the module.
        is_tied: the head shares the embedding's weights.
    """

    def __init__(
        self,
        task: ModelTask,
        attention: MakeAttention,
        seed: int,
        num_tokens: int,
        num_classes: int,
        *,
        read: slice = slice(None),
        token_shift: bool = False,
        is_tied: bool = False,
    ) -> None:
        super().__init__(task, attention, seed)
        self.read, self.token_shift = read, token_shift
        with seeded(derive_seed(seed, "ends")):
            self.embed = nn.Embedding(num_tokens, task.width)
            nn.init.normal_(self.embed.weight, std=task.init_std)
            self.positions = nn.Parameter(
                torch.randn(1, task.sizes.tokens, task.width) * task.init_std
            )
            self.head = nn.Linear(task.width, num_classes)
        if is_tied:
            self.head.weight = self.embed.weight


class TokenModel(_Embedded):
    """A causal model with logits at some tokens."""

    def forward(self, tokens: Int[Tensor, "b n"]) -> Float[Tensor, "b m classes"]:
        """Logits at the tokens in ``read``."""
        logits: Tensor = self.head(self.features(tokens, self.read))
        return logits

    def features(
        self, tokens: Int[Tensor, "b n"], read: slice = slice(None)
    ) -> Float[Tensor, "b m d"]:
        """The final norm's output at the tokens in ``read``."""
        x = self.embed(tokens)
        if self.token_shift:
            x = x + F.pad(x.roll(1, dims=2)[:, :-1], (0, 0, 1, 0))
        return self.transform(x + self.positions, read)


class TextModel(_Embedded):
    """A classifier of whole texts, padded at the end."""

    def forward(self, tokens: Int[Tensor, "b n"]) -> Float[Tensor, "b classes"]:
        """Logits; attention and mean leave padding out."""
        is_padding = tokens == PADDING
        x = self.transform(self.embed(tokens) + self.positions, padding=is_padding)
        kept = (~is_padding).to(x.dtype).unsqueeze(2)
        logits: Tensor = self.head((x * kept).sum(1) / kept.sum(1))
        return logits
