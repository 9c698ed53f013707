"""A task family: the first token names a position; the target is the symbol at that position."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from nas.common.objectives import Metric
from nas.genome import ModelSizes
from nas.tasks.base import TASKS, Data, ModelTask
from nas.tasks.layers import Transformer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nas.tasks.base import Batch, MakeAttention, Side


@TASKS.register("pointer")
class PointerTask(ModelTask):
    """Predict the symbol at the position that the first token names.

    Attributes:
        places: positions of a sequence.
        symbols: number of different symbols.
        train_examples, validation_examples: number of sequences.
    """

    kind: ClassVar[str] = "pointer"
    data_kinds: ClassVar[Mapping[str, str]] = {"synthetic": ""}
    num_tallies: ClassVar[int] = 2

    data: str = "synthetic"
    places: int = Field(default=24, ge=2)
    symbols: int = Field(default=8, ge=2)
    train_examples: int = Field(default=512, ge=1)
    validation_examples: int = Field(default=128, ge=1)

    @property
    def sizes(self) -> ModelSizes:
        return ModelSizes(self.width, self.heads, self.depth, self.places + 1)

    def metrics(self, data: Data) -> tuple[Metric, ...]:
        return (Metric("accuracy", "fraction", "max", 1 / self.symbols, 1.0),)

    def load(self) -> Data:
        rng = np.random.default_rng(self.data_seed)
        train = self._draw(self.train_examples, rng)
        validation = self._draw(self.validation_examples, rng)
        content = b"".join(c.tobytes() for c in (*train.values(), *validation.values()))
        return Data(self.data, train, validation, hashlib.sha256(content).hexdigest()[:16])

    def _draw(self, count: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        pointers = rng.integers(0, self.places, count)
        symbols = rng.integers(0, self.symbols, (count, self.places))
        tokens = np.concatenate([self.symbols + pointers[:, None], symbols], axis=1)
        return {"tokens": tokens, "targets": symbols[np.arange(count), pointers]}

    def examples(
        self, data: Data, side: Side, device: torch.device, dtype: torch.dtype
    ) -> Sequences:
        return Sequences(data.train if side == "train" else data.validation, device)

    def order(self, data: Data, epoch: int, rng: torch.Generator) -> Tensor:
        return torch.randperm(data.count("train"), generator=rng)

    def num_eval_examples(self, data: Data, epoch: int) -> int:
        return data.count("validation")

    def build_model(self, data: Data, attention: MakeAttention, seed: int) -> nn.Module:
        return PointerModel(self, attention, seed)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, int]:
        tokens, targets = batch
        return F.cross_entropy(model(tokens), targets, reduction="sum"), len(targets)

    def tally(self, model: nn.Module, batch: Batch) -> Tensor:
        tokens, targets = batch
        right = (model(tokens).argmax(dim=-1) == targets).sum()
        return torch.stack([right.double(), torch.tensor(float(len(targets))).double()])

    def score(self, totals: list[float]) -> dict[str, float]:
        right, count = totals
        return {"accuracy": right / count}


class PointerModel(Transformer):
    """Embedded tokens with learned positions; reads the prediction from the first token."""

    def __init__(self, task: PointerTask, attention: MakeAttention, seed: int) -> None:
        super().__init__(task, attention, seed)
        generator = torch.Generator().manual_seed(seed)

        def drawn(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape, generator=generator) * task.width**-0.5)

        self.embed = drawn(task.symbols + task.places, task.width)
        self.positions = drawn(task.places + 1, task.width)
        self.answer = drawn(task.width, task.symbols)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (batch, symbols) of tokens (batch, places + 1)."""
        x = self.transform(self.embed[tokens] + self.positions, slice(0, 1))
        return x[:, 0] @ self.answer


class Sequences:
    """Sequences on a device: batches of (tokens, targets)."""

    def __init__(self, columns: Mapping[str, np.ndarray], device: torch.device) -> None:
        self.tokens = torch.tensor(columns["tokens"], device=device)
        self.targets = torch.tensor(columns["targets"], device=device)

    def __len__(self) -> int:
        return len(self.tokens)

    def batch(self, chosen: Tensor) -> Batch:
        """The chosen sequences."""
        return self.tokens[chosen], self.targets[chosen]
