"""The task family ``recall``: associative recall on synthetic tokens, causal.

    k_1 v_1 k_2 v_2 ... k_p v_p   k_σ(1) k_σ(2) ... k_σ(p)

Distinct keys, each with a value drawn anew for every sequence, then each key once more in random
order; there the model answers with the key's value. Multi-query associative recall (MQAR, Arora et
al. 2023, Zoology, arXiv 2312.04927), made short enough to be learned in seconds. A mechanism that
cannot look up a token by its content stays where guessing the commonest value brings it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from nas.genome import ModelSizes
from nas.tasks.base import TASKS, Data
from nas.tasks.classification import Classification

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from nas.tasks.base import Examples, MakeAttention, Side


@TASKS.register("recall")
class RecallTask(Classification):
    """Recall the value that stood behind a key.

    Attributes:
        num_keys, num_values: of the vocabulary; keys come first.
        pairs: of key and value in a sequence, which has three tokens for each.
        train_examples: sequences of an epoch; every epoch has fresh ones.
        validation_examples: sequences that judge the last epoch.
        curve_examples: how many of them judge the epochs before.
    """

    kind: ClassVar[str] = "recall"
    data_kinds: ClassVar[tuple[str, ...]] = ("synthetic",)
    is_causal: ClassVar[bool] = True
    judged_things: ClassVar[str] = "queried keys' values"

    data: Literal["synthetic"] = "synthetic"
    num_keys: int = Field(default=64, ge=2, le=100_000)
    num_values: int = Field(default=16, ge=2, le=100_000)
    pairs: int = Field(default=16, ge=1, le=10_000)
    train_examples: int = Field(default=1800, ge=1)
    validation_examples: int = Field(default=512, ge=1)
    curve_examples: int = Field(default=128, ge=1)

    @model_validator(mode="after")
    def _keys_suffice(self) -> RecallTask:
        if self.pairs > self.num_keys:
            raise ValueError(
                f"pairs is {self.pairs}; expected at most num_keys, {self.num_keys}: "
                "the keys of a sequence are distinct"
            )
        return self

    @property
    def sizes(self) -> ModelSizes:
        """Model width, heads, layers and tokens."""
        return ModelSizes(self.width, self.heads, self.depth, 3 * self.pairs)

    def num_classes(self, data: Data) -> int:
        """Of values."""
        return self.num_values

    def load(self) -> Data:
        """Draw the sequences of all epochs, and those that judge."""
        rngs = np.random.default_rng(self.data_seed).spawn(2)
        validation = self._draw(self.validation_examples, rngs[0])
        train = self._draw(self.epochs * self.train_examples, rngs[1])
        digest = hashlib.blake2b(digest_size=8)
        for column in (*train.values(), *validation.values()):
            digest.update(f"{column.shape}".encode())
            digest.update(column.data)
        return Data(self.data, train, validation, digest.hexdigest())

    def _draw(self, count: int, rng: np.random.Generator) -> dict[str, NDArray[np.int64]]:
        """Columns ``tokens`` (count, 3 pairs) and ``targets`` (count, pairs)."""
        shape = count, self.pairs
        keys = np.stack([rng.permutation(self.num_keys)[: self.pairs] for _ in range(count)])
        values = rng.integers(0, self.num_values, shape)
        order = np.stack([rng.permutation(self.pairs) for _ in range(count)])
        shown = np.stack([keys, self.num_keys + values], axis=2).reshape(count, -1)
        queries = np.take_along_axis(keys, order, axis=1)
        tokens = np.concatenate([shown, queries], axis=1)
        return {"tokens": tokens, "targets": np.take_along_axis(values, order, axis=1)}

    def examples(
        self, data: Data, side: Side, device: torch.device, dtype: torch.dtype
    ) -> Examples:
        """The sequences on a device: batches of (tokens, targets)."""
        from nas.tasks.recall_model import Sequences

        return Sequences(data.train if side == "train" else data.validation, device)

    def epoch_size(self, data: Data) -> int:
        """Sequences of an epoch."""
        return data.count("train") // self.epochs

    def order(self, data: Data, epoch: int, rng: torch.Generator) -> Tensor:
        """The epoch's own sequences, shuffled."""
        return (epoch - 1) * self.epoch_size(data) + super().order(data, epoch, rng)

    def judged(self, data: Data, epoch: int) -> int:
        """All validation sequences judge the last epoch, ``curve_examples`` the others."""
        held_out = data.count("validation")
        return held_out if epoch == self.epochs else min(self.curve_examples, held_out)

    def build_model(self, data: Data, attention: MakeAttention, seed: int) -> nn.Module:
        """A causal transformer over the vocabulary."""
        from nas.tasks.recall_model import RecallModel

        num_tokens = self.num_keys + self.num_values
        return RecallModel(self, attention, seed, num_tokens, self.num_values)
