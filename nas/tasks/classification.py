"""The base class of tasks whose models predict a class for each example or some of its tokens.

A batch is a pair (inputs, labels); a model returns one row of logits for each label. The loss and
the metrics, accuracy and log-loss, ignore labels that are equal to ``IGNORE_INDEX``.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Final

from nas.common.objectives import Metric
from nas.tasks.base import Batch, Data, ModelTask

if TYPE_CHECKING:
    from torch import Tensor, nn

IGNORE_INDEX: Final = -1


class Classification(ModelTask):
    """A classification task; subclasses add the data, the model, and the number of classes.

    ``targets_name`` is what is classified, as a plural noun for the descriptions of metrics.
    """

    num_tallies: ClassVar[int] = 3
    targets_name: ClassVar[str]

    @abstractmethod
    def num_classes(self, data: Data) -> int:
        """Return the number of classes, which is the number of logits."""

    def metrics(self, data: Data) -> tuple[Metric, ...]:
        chance, targets = 1.0 / self.num_classes(data), self.targets_name
        return (
            Metric("accuracy", "fraction", "max", chance, 1.0, f"share of {targets} got right"),
            Metric("log_loss", "nat", "min", -math.log(chance), 0.0,
                   f"mean negative log-likelihood of {targets}"),
        )  # fmt: skip

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        inputs, labels = batch
        return _cross_entropy(model(inputs).float().flatten(0, -2), labels.flatten())

    def tally(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return sums over a batch: correct answers, cross entropies, and the number of labels."""
        import torch

        inputs, labels = batch
        logits, targets = model(inputs).float().flatten(0, -2), labels.flatten()
        correct = (logits.argmax(dim=-1) == targets).sum()
        return torch.stack([t.double() for t in (correct, *_cross_entropy(logits, targets))])

    def score(self, totals: list[float]) -> dict[str, float]:
        correct, loss, count = totals
        return {"accuracy": correct / count, "log_loss": loss / count}


def _cross_entropy(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    from torch.nn.functional import cross_entropy

    loss = cross_entropy(logits, targets, reduction="sum", ignore_index=IGNORE_INDEX)
    return loss, (targets != IGNORE_INDEX).sum()
