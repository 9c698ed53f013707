"""What a training says after an epoch; without torch, since records of trainings hold it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Report:
    """What a training says after an epoch.

    Attributes:
        epoch: counts from 1.
        train_loss: mean over the epoch's targets.
        metrics: value by the metric's name, on held-out data.
        core_seconds: processor time so far.
    """

    epoch: int
    train_loss: float
    metrics: Mapping[str, float]
    core_seconds: float
