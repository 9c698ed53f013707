"""What tasks share whose models choose a class: one for each example, or for some of its tokens.

A batch is (inputs, labels), a model gives logits with one row for each label; where a label is
``IGNORE_INDEX``, nothing is learned or judged. Metrics are accuracy and log-loss.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Final

from nas.common.objectives import Metric
from nas.tasks.base import Data, ModelTask

if TYPE_CHECKING:
    from torch import Tensor, nn

    from nas.tasks.base import Batch


IGNORE_INDEX: Final = -1
"""The label of a token at which there is nothing to say."""


class Classification(ModelTask):
    """A task of classes; families add data and model, and say how many classes there are."""

    num_tallies: ClassVar[int] = 3
    judged_things: ClassVar[str]

    @abstractmethod
    def num_classes(self, data: Data) -> int:
        """How many classes there are; chance is one in so many."""

    def metrics(self, data: Data) -> tuple[Metric, ...]:
        """Accuracy, and the mean loss that it is trained on."""
        chance, things = 1.0 / self.num_classes(data), self.judged_things
        return (
            Metric("accuracy", "fraction", "max", chance, 1.0, f"share of {things} got right"),
            Metric("log_loss", "nat", "min", -math.log(chance), 0.0,
                   f"mean negative log-likelihood of {things}"),
        )  # fmt: skip

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Cross entropy, summed over the labels."""
        inputs, labels = batch
        return _summed(model(inputs).float().flatten(0, -2), labels.flatten())

    def tally(self, model: nn.Module, batch: Batch) -> Tensor:
        """How many are right, their losses summed, and how many there are."""
        import torch

        inputs, labels = batch
        logits, targets = model(inputs).float().flatten(0, -2), labels.flatten()
        right = (logits.argmax(dim=-1) == targets).sum()
        return torch.stack([one.double() for one in (right, *_summed(logits, targets))])

    def score(self, totals: list[float]) -> dict[str, float]:
        """Accuracy and log-loss."""
        right, loss, count = totals
        return {"accuracy": right / count, "log_loss": loss / count}


def _summed(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The losses added up, and how many there are."""
    from torch.nn.functional import cross_entropy

    loss = cross_entropy(logits, targets, reduction="sum", ignore_index=IGNORE_INDEX)
    return loss, (targets != IGNORE_INDEX).sum()
