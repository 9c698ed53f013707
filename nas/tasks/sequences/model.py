"""A causal model of tokens, a classifier of whole texts, and the batches of both models.

    x_t = E[token_t] + P_t   (+ roll(E[token_{t-1}]) with a token shift)
    causal: logits_t = W · norm(layers(x))_t        text: logits = W · mean_t norm(layers(x))_t

E contains the embeddings of tokens and P the embeddings of positions. ``roll`` rotates the features
by one place, so that a token and its predecessor stay distinct. Without a token shift, attention
must first learn to read the previous token. (Arora et al. 2023 use a short convolution instead.)
"""

from __future__ import annotations

from typing import Final, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from nas.tasks.base import Batch, MakeAttention, ModelTask
from nas.tasks.layers import Transformer

PADDING: Final = 0  # the token that pads short texts


class Rows:
    """Sequences on a device; a batch is a pair (tokens, targets)."""

    def __init__(
        self, tokens: NDArray[np.generic], targets: NDArray[np.generic], device: torch.device
    ) -> None:
        self.tokens = torch.tensor(tokens, device=device).long()
        self.targets = torch.tensor(targets, device=device).long()

    def __len__(self) -> int:
        return len(self.tokens)

    def batch(self, chosen: Int[Tensor, "b"]) -> Batch:
        return self.tokens.index_select(0, chosen), self.targets.index_select(0, chosen)


class Windows:
    """All windows of ``length`` tokens of a text; a batch is a pair (tokens, next tokens)."""

    def __init__(self, text: NDArray[np.generic], length: int, device: torch.device) -> None:
        self.text = torch.tensor(text, device=device)
        self.offsets = torch.arange(length + 1, device=device)

    def __len__(self) -> int:
        return len(self.text) - len(self.offsets) + 1

    def batch(self, chosen: Int[Tensor, "b"]) -> Batch:
        """Return the windows that start at ``chosen``, and their next tokens."""
        rows = self.text[chosen.unsqueeze(1) + self.offsets].long()
        return rows[:, :-1], rows[:, 1:]


class _Embedded(Transformer):
    """A transformer with embeddings of tokens and positions, and with an output layer.

    Logits are computed at the tokens ``read``, from some token to the last. If ``is_tied``, the
    output layer and the embedding of tokens share their weights.
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
        self.num_learned, self.token_shift = task.registers, token_shift
        self.read = slice(task.registers + (read.start or 0), None)

        def embed() -> nn.Embedding:
            module = nn.Embedding(num_tokens, task.width)
            nn.init.normal_(module.weight, std=task.init_std)
            return module

        self.add_ends(task, seed, embed, num_classes, task.registers)
        if is_tied:
            self.head.weight = self.get_parameter("embed.weight")


class TokenModel(_Embedded):
    """A causal model that returns logits at the positions in its argument ``read``."""

    def forward(self, tokens: Int[Tensor, "b n"]) -> Float[Tensor, "b m classes"]:
        x = self.embed(tokens)
        if self.token_shift:
            x = x + F.pad(x.roll(1, dims=2)[:, :-1], (0, 0, 1, 0))
        return cast("Tensor", self.head(self.transform(self.place(x), self.read)))


class TextModel(_Embedded):
    """A classifier of whole texts; short texts are padded at the end."""

    def forward(self, tokens: Int[Tensor, "b n"]) -> Float[Tensor, "b classes"]:
        """Return the logits of each text; attention and the mean over tokens ignore padding."""
        is_padding = tokens == PADDING
        hidden = F.pad(is_padding, (self.num_learned, 0))
        x = self.transform(self.place(self.embed(tokens)), self.read, hidden)
        kept = (~is_padding).to(x.dtype).unsqueeze(2)
        return cast("Tensor", self.head((x * kept).sum(1) / kept.sum(1)))
