"""What all families on tokens share: how many examples are trained on, and how many judge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from nas.tasks.classification import Classification

if TYPE_CHECKING:
    from nas.tasks.base import Data


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

    def judged(self, data: Data, epoch: int) -> int:
        """All validation examples judge the last epoch, ``curve_examples`` the others."""
        held_out = data.count("validation")
        return held_out if epoch == self.epochs else min(self.curve_examples, held_out)
