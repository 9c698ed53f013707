"""Training: train a model of a task on a processor core or a GPU.

`nas.evaluation` calls this package: it assigns trainings to workers and records their results. The
class `Report` is defined here because records contain it, and reading a record imports no torch.
Import everything else from its module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ConfigDict


@dataclass(frozen=True, slots=True)
class Report:
    """The results of one epoch of a training.

    Attributes:
        epoch: number of the epoch, from 1.
        train_loss: mean loss over the epoch's training targets.
        metrics: metrics on held-out data, by name.
        core_seconds: processor time in seconds since the start of the training.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    epoch: int
    train_loss: float
    metrics: Mapping[str, float]
    core_seconds: float
