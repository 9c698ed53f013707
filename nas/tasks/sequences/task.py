"""The base class of task families on tokens, and two functions for data specs and digests."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from nas.genome import ModelSizes
from nas.tasks.base import Data, Examples, Side
from nas.tasks.classification import Classification
from nas.tasks.files import checked_spec

if TYPE_CHECKING:
    import torch

MAX_TOKENS: Final = 2**28  # largest number of tokens of the sequences in memory


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

    @property
    def num_sequences(self) -> int:
        """The number of sequences in the larger split of the data, which must fit into memory."""
        return max(self.train_examples, self.validation_examples)

    @model_validator(mode="after")
    def _fits_memory(self) -> SequenceTask:
        if self.num_sequences * self.sizes.tokens > MAX_TOKENS:
            raise ValueError(
                f"{self.num_sequences} sequences of {self.sizes.tokens} tokens; expected at most "
                f"{MAX_TOKENS} tokens in all"
            )
        return self

    def examples(
        self, data: Data, side: Side, device: torch.device, dtype: torch.dtype
    ) -> Examples:
        from nas.tasks.sequences.model import Rows

        columns = data.train if side == "train" else data.validation
        tokens, targets = columns.values()
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


def checked_text_spec(spec: str, file_kind: str) -> str:
    """Return ``checked_spec`` of ``synthetic``, FILE_KIND:PATH or hf:NAME."""
    return checked_spec(spec, {"synthetic": "", file_kind: "PATH", "hf": "NAME"})
