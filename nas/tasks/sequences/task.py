"""The base class of families on tokens, and their examples on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from nas.genome import ModelSizes
from nas.tasks.base import Batch, Data
from nas.tasks.classification import Classification
from nas.tasks.files import checked_spec

if TYPE_CHECKING:
    import torch
    from jaxtyping import Int
    from torch import Tensor

MAX_TOKENS: Final = 2**28  # largest number of tokens in memory


class SequenceTask(Classification):
    """A task on tokens; subclasses have ``length``, the tokens of a sequence.

    Attributes:
        train_examples: number of examples in an epoch.
        validation_examples: number of examples that evaluate the last epoch.
        curve_examples: number of these that evaluate each earlier epoch.
    """

    train_examples: int = Field(default=4000, ge=1)
    validation_examples: int = Field(default=1024, ge=1)
    curve_examples: int = Field(default=256, ge=1)

    @property
    def sizes(self) -> ModelSizes:
        """Model width, heads, layers and tokens."""
        tokens: int = self.length  # type: ignore[attr-defined]
        return ModelSizes(self.width, self.heads, self.depth, tokens)

    @property
    def num_sequences(self) -> int:
        """The largest number of sequences of a side in memory."""
        return max(self.train_examples, self.validation_examples)

    @model_validator(mode="after")
    def _fits_memory(self) -> SequenceTask:
        if self.num_sequences * self.sizes.tokens > MAX_TOKENS:
            raise ValueError(
                f"{self.num_sequences} sequences of {self.sizes.tokens} tokens; expected at most "
                f"{MAX_TOKENS} tokens in all"
            )
        return self

    def num_eval_examples(self, data: Data, epoch: int) -> int:
        """All validation examples in the last epoch, ``curve_examples`` before."""
        count = super().num_eval_examples(data, epoch)
        return count if epoch == self.epochs else min(self.curve_examples, count)


def checked_text_spec(spec: str, file_kind: str) -> str:
    """A data spec of texts: ``synthetic``, FILE_KIND:PATH or hf:NAME; see ``checked_spec``.

    ``made`` is the earlier name of ``synthetic``.
    """
    spec = "synthetic" if spec == "made" else spec
    return checked_spec(spec, {"synthetic": "", file_kind: "PATH", "hf": "NAME"})


class Rows:
    """Sequences with their targets: batches of (tokens, targets)."""

    def __init__(
        self, tokens: NDArray[np.generic], targets: NDArray[np.generic], device: torch.device
    ) -> None:
        import torch

        self.tokens = torch.tensor(tokens, device=device).long()
        self.targets = torch.tensor(targets, device=device).long()

    def __len__(self) -> int:
        return len(self.tokens)

    def batch(self, chosen: Int[Tensor, "b"]) -> Batch:
        """The chosen sequences."""
        return self.tokens.index_select(0, chosen), self.targets.index_select(0, chosen)


class Windows:
    """Windows of a text, indexed by their start: batches of (tokens, next tokens)."""

    def __init__(self, text: NDArray[np.generic], length: int, device: torch.device) -> None:
        import torch

        self.text = torch.tensor(text, device=device)
        self.offsets = torch.arange(length + 1, device=device)

    def __len__(self) -> int:
        return len(self.text) - len(self.offsets) + 1

    def batch(self, chosen: Int[Tensor, "b"]) -> Batch:
        """The windows that start at the chosen indices."""
        rows = self.text[chosen.unsqueeze(1) + self.offsets].long()
        return rows[:, :-1], rows[:, 1:]
