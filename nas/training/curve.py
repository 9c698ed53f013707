"""A learning curve's points; without torch, since records of trainings hold them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Epoch:
    """One point of a learning curve; epochs count from 1, accuracy is a fraction."""

    epoch: int
    train_loss: float
    validation_accuracy: float
