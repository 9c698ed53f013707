"""A metric: the difference between the model's mean confidence and its accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch

from nas.common.objectives import Metric
from nas.tasks.base import TASKS
from tests.plugins.task import PointerTask

if TYPE_CHECKING:
    from torch import Tensor, nn

    from nas.tasks.base import Batch, Data

OVERCONFIDENCE = Metric(
    "overconfidence",
    "fraction",
    "min",
    chance=1.0,
    ideal=0.0,
    about="absolute difference of mean confidence and accuracy",
)


@TASKS.register("honest_pointer")
class HonestPointerTask(PointerTask):
    """The same task with a second metric, the calibration of its probabilities."""

    kind: ClassVar[str] = "honest_pointer"
    num_tallies: ClassVar[int] = 3

    def metrics(self, data: Data) -> tuple[Metric, ...]:
        return (*super().metrics(data), OVERCONFIDENCE)

    def tally(self, model: nn.Module, batch: Batch) -> Tensor:
        tokens, targets = batch
        probabilities = model(tokens).double().softmax(dim=-1)
        confidence, answer = probabilities.max(dim=-1)
        right = (answer == targets).double()
        return torch.stack([right.sum(), confidence.sum(), torch.ones_like(right).sum()])

    def score(self, totals: list[float]) -> dict[str, float]:
        right, confidence, count = totals
        return {"accuracy": right / count, "overconfidence": abs(confidence - right) / count}
