"""Models on tokens: a causal model, and a classifier of whole texts; and their input on a device.

    x_t = E[token_t] + P_t   (+ roll(E[token_{t-1}]) with a token shift)
    causal: answer_t = W · norm(layers(x))_t        text: answer = W · mean_t norm(layers(x))_t

``roll`` shifts the features by one place, so that a token and its predecessor stay distinct.
Zoology gives every mixer a short convolution instead. Without either of them, standard attention
must first learn to read the previous token, which takes longer than the training of recall.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from nas.tasks.base import Batch, MakeAttention, ModelTask
from nas.tasks.layers import Transformer, derive_seed, seeded

PADDING: Final = 0
"""The token that pads short texts."""


class Rows:
    """Sequences with their targets on a device; batches are (tokens, targets)."""

    def __init__(
        self, tokens: NDArray[np.generic], targets: NDArray[np.generic], device: torch.device
    ) -> None:
        self.tokens = torch.tensor(tokens, device=device).long()
        self.targets = torch.tensor(targets, device=device).long()

    def __len__(self) -> int:
        return len(self.tokens)

    def batch(self, chosen: Int[Tensor, "b"]) -> Batch:
        """Return the sequences with the indices ``chosen``, and their targets."""
        return self.tokens.index_select(0, chosen), self.targets.index_select(0, chosen)


class Windows:
    """Windows of a text on a device, indexed by their start; batches are (tokens, next tokens)."""

    def __init__(self, text: NDArray[np.generic], length: int, device: torch.device) -> None:
        self.text = torch.tensor(text, device=device)
        self.offsets = torch.arange(length + 1, device=device)

    def __len__(self) -> int:
        return len(self.text) - len(self.offsets) + 1

    def batch(self, chosen: Int[Tensor, "b"]) -> Batch:
        """Return the windows that start at the indices ``chosen``, and their next tokens."""
        rows = self.text[chosen.unsqueeze(1) + self.offsets].long()
        return rows[:, :-1], rows[:, 1:]


class _Embedded(Transformer):
    """Transformer layers on embedded tokens with learned positions.

    Args:
        task, attention, seed: see ``Transformer``.
        num_tokens: size of the vocabulary.
        num_classes: number of classes that the output layer distinguishes.
        read: the tokens with an output.
        token_shift: whether to add each token's predecessor, see the module.
        is_tied: whether the output layer shares the embedding's weights.
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
    """A causal model with logits at the tokens in ``read``."""

    def forward(self, tokens: Int[Tensor, "b n"]) -> Float[Tensor, "b m classes"]:
        """Return the logits at the tokens in ``read``."""
        logits: Tensor = self.head(self.features(tokens, self.read))
        return logits

    def features(
        self, tokens: Int[Tensor, "b n"], read: slice = slice(None)
    ) -> Float[Tensor, "b m d"]:
        """Return the output of the final norm at the tokens in ``read``."""
        x = self.embed(tokens)
        if self.token_shift:
            x = x + F.pad(x.roll(1, dims=2)[:, :-1], (0, 0, 1, 0))
        return self.transform(x + self.positions, read)


class TextModel(_Embedded):
    """A classifier of whole texts, which are padded at the end."""

    def forward(self, tokens: Int[Tensor, "b n"]) -> Float[Tensor, "b classes"]:
        """Return logits of texts; attention and the mean over tokens ignore padding."""
        is_padding = tokens == PADDING
        x = self.transform(self.embed(tokens) + self.positions, padding=is_padding)
        kept = (~is_padding).to(x.dtype).unsqueeze(2)
        logits: Tensor = self.head((x * kept).sum(1) / kept.sum(1))
        return logits
