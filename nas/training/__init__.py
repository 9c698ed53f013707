"""Training: train a model of a task on a processor core or a GPU.

`Report` is defined here so that a record, which contains reports, can be read without importing
torch. Import everything else from its module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ConfigDict


@dataclass(frozen=True, slots=True)
class Report:
    """The results of one epoch of a training; epochs are numbered from 1.

    ``train_loss`` is the mean over the epoch's targets, ``metrics`` are those on held-out data, and
    ``core_seconds`` is the processor time since the start of the training.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    epoch: int
    train_loss: float
    metrics: Mapping[str, float]
    core_seconds: float
