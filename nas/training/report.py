"""The report of an epoch. It needs no torch, because records of trainings contain it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ConfigDict


@dataclass(frozen=True, slots=True)
class Report:
    """The report of an epoch.

    Attributes:
        epoch: counts from 1.
        train_loss: mean over the epoch's targets.
        metrics: by name, on held-out data.
        core_seconds: processor time since the start of the training.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    epoch: int
    train_loss: float
    metrics: Mapping[str, float]
    core_seconds: float
