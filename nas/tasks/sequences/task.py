"""The base class of task families on tokens, and the digest of their data."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from nas.genome import ModelSizes
from nas.tasks.base import Classification, Data, Examples, Side

if TYPE_CHECKING:
    import torch


class SequenceTask(Classification):
    """A task on sequences of tokens; subclasses define ``length``, their number of tokens.

    Attributes:
        train_examples: number of training examples in an epoch.
        validation_examples: number of validation examples, all evaluated after the last epoch.
        curve_examples: number of validation examples that are evaluated after each earlier epoch.
    """

    train_examples: int = Field(default=4000, ge=1)
    validation_examples: int = Field(default=1024, ge=1)
    curve_examples: int = Field(default=256, ge=1)

    @property
    def sizes(self) -> ModelSizes:
        tokens: int = self.registers + self.length  # type: ignore[attr-defined]
        return ModelSizes(self.width, self.heads, self.depth, tokens)

    def examples(
        self, data: Data, side: Side, device: torch.device, dtype: torch.dtype
    ) -> Examples:
        from nas.tasks.sequences.model import Rows

        tokens, targets = data.columns(side).values()
        return Rows(tokens, targets, device)

    def num_eval_examples(self, data: Data, epoch: int) -> int:
        count = super().num_eval_examples(data, epoch)
        return count if epoch == self.epochs else min(self.curve_examples, count)


def content_digest(label: str, *sides: Mapping[str, NDArray[np.integer]]) -> str:
    """Return a digest, 16 hex characters, of ``label`` and of the columns of data splits."""
    digest = hashlib.blake2b(label.encode(), digest_size=8)
    for column in (column for side in sides for column in side.values()):
        digest.update(f"{column.shape}".encode())
        digest.update(np.ascontiguousarray(column).data)
    return digest.hexdigest()
