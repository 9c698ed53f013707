"""What all families on tokens share: how many examples are trained on, and how many judge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic import Field, model_validator

from nas.tasks.classification import Classification

if TYPE_CHECKING:
    from nas.tasks.base import Data

MAX_TOKENS: Final = 2**28  # of the sequences that are held at once


class SequenceTask(Classification):
    """A task on tokens.

    Attributes:
        train_examples: of an epoch.
        validation_examples: that judge the last epoch.
        curve_examples: how many of them judge the epochs before.
    """

    train_examples: int = Field(default=4000, ge=1)
    validation_examples: int = Field(default=1024, ge=1)
    curve_examples: int = Field(default=256, ge=1)

    @property
    def num_sequences(self) -> int:
        """How many are held at most, to train on or to judge."""
        return max(self.train_examples, self.validation_examples)

    @model_validator(mode="after")
    def _can_be_held(self) -> SequenceTask:
        if self.num_sequences * self.sizes.tokens > MAX_TOKENS:
            raise ValueError(
                f"{self.num_sequences} sequences of {self.sizes.tokens} tokens; expected at most "
                f"{MAX_TOKENS} tokens in all"
            )
        return self

    def num_eval_examples(self, data: Data, epoch: int) -> int:
        """All validation examples judge the last epoch, ``curve_examples`` the others."""
        held_out = data.count("validation")
        return held_out if epoch == self.epochs else min(self.curve_examples, held_out)
