"""The model of associative recall: a causal transformer whose tokens know their predecessor.

    x_t = E[token_t] + roll(E[token_{t-1}]) + P_t;   answer_t = W · norm(layers(x))_t

``roll`` turns the features by one place, so that a token and its predecessor stay apart. Zoology
gives every mixer a short convolution instead; without either, standard attention must first learn
to look at the previous token, which takes longer than this task lasts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from nas.tasks.layers import Transformer
from nas.tasks.seeds import derive_seed, seeded

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from nas.tasks.base import Batch, MakeAttention, Task


class RecallModel(Transformer):
    """From tokens to the logits of values at the queried positions, the last third.

    Args:
        task, attention, seed: see ``Transformer``.
        num_tokens: of the vocabulary.
        num_values: width of the result.
    """

    def __init__(
        self, task: Task, attention: MakeAttention, seed: int, num_tokens: int, num_values: int
    ) -> None:
        super().__init__(task, attention, seed)
        self.queried = slice(2 * task.sizes.tokens // 3, None)
        with seeded(derive_seed(seed, "ends")):
            self.embed = nn.Embedding(num_tokens, task.width)
            nn.init.normal_(self.embed.weight, std=task.init_std)
            self.positions = nn.Parameter(
                torch.randn(1, task.sizes.tokens, task.width) * task.init_std
            )
            self.head = nn.Linear(task.width, num_values)

    def forward(self, tokens: Int[Tensor, "b n"]) -> Float[Tensor, "b p values"]:
        """Logits of the values that the queried keys had."""
        logits: Tensor = self.head(self.features(tokens, self.queried))
        return logits

    def features(
        self, tokens: Int[Tensor, "b n"], read: slice = slice(None)
    ) -> Float[Tensor, "b m d"]:
        """What stands behind the last norm at the tokens that are read."""
        embedded = self.embed(tokens)
        previous = F.pad(embedded.roll(1, dims=2)[:, :-1], (0, 0, 1, 0))
        return self.transform(embedded + previous + self.positions, read)


class Sequences:
    """Sequences on a device: batches of (tokens, targets)."""

    def __init__(self, columns: Mapping[str, NDArray[np.generic]], device: torch.device) -> None:
        self.tokens = torch.tensor(columns["tokens"], device=device)
        self.targets = torch.tensor(columns["targets"], device=device)

    def __len__(self) -> int:
        return len(self.tokens)

    def batch(self, chosen: Int[Tensor, "b"]) -> Batch:
        """The chosen sequences."""
        return self.tokens.index_select(0, chosen), self.targets.index_select(0, chosen)
