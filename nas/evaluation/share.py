"""Share out the machine: how many workers there are, and how much of a GPU each one has.

Every worker has one processor core. Pure arithmetic over what a cluster offers and what a person
asked for, so that every sentence about hardware that is not there is written once.
"""

import math
from dataclasses import dataclass
from typing import Final

from nas.errors import ConfigError, DeviceError

WORKERS_PER_GPU: Final = 4
"""Unless told otherwise. Small models wait for Python more than for the GPU, so several can share
one; each holds a CUDA context of some 0.5 GB, so not too many."""

_GRAIN: Final = 10_000  # Ray divides a GPU into this many parts


@dataclass(frozen=True, slots=True)
class Share:
    """What each of `workers` workers gets, besides its one core.

    Args:
        workers: how many trainings run at once, >= 1.
        gpus: GPUs of one worker; a fraction below 1 is shared, 0 trains on the processor.
    """

    workers: int
    gpus: float

    @property
    def device(self) -> str:
        """The torch device of a worker: "cuda" or "cpu"."""
        return "cuda" if self.gpus else "cpu"


def check_counts(workers: int | None, gpus_per_worker: float | None) -> None:
    """Refuse counts that mean nothing on any machine.

    Raises:
        ConfigError: fewer workers than one, or a share of a GPU that is negative, not finite, or
            more than the one GPU that a training can use.
    """
    if workers is not None and workers < 1:
        raise ConfigError(f"workers: found {workers}, expected 1 or more.")
    if gpus_per_worker is None:
        return
    is_share = 0 <= gpus_per_worker <= 1
    if not is_share or (gpus_per_worker and gpus_per_worker * _GRAIN < 1):
        raise ConfigError(
            f"gpus-per-worker: found {gpus_per_worker:g}, expected 0, a fraction of one GPU such "
            "as 0.25, or 1: a training uses one GPU."
        )


def share_out(
    *, cores: int, gpus: int, workers: int | None, gpus_per_worker: float | None, place: str
) -> Share:
    """Say how many workers there are and what each one gets.

    Args:
        cores: processor cores on offer.
        gpus: GPUs on offer.
        workers: as asked for; None takes every core, or `WORKERS_PER_GPU` for each GPU.
        gpus_per_worker: as asked for; None shares the GPUs, if there are any, evenly.
        place: what offers this, for the error sentences, for example "this machine".

    Raises:
        ConfigError: see `check_counts`.
        DeviceError: there are too few cores or GPUs for what was asked.
    """
    check_counts(workers, gpus_per_worker)
    if cores < 1:
        raise DeviceError(f"{place} has no processor core, and each worker needs one.")
    if workers is not None and workers > cores:
        raise DeviceError(
            f"{workers} workers need {workers} processor cores and {place} has {cores}: ask for "
            f"{cores} workers or fewer."
        )
    if gpus_per_worker is None and gpus:
        workers = workers or min(cores, WORKERS_PER_GPU * gpus)
        return Share(workers, math.floor(_GRAIN / math.ceil(workers / gpus)) / _GRAIN)
    if not gpus_per_worker:
        return Share(workers or cores, 0.0)
    fitting = gpus * math.floor(1 / gpus_per_worker)
    if fitting < (workers or 1):
        asked = f"{workers} workers with" if workers and workers > 1 else "workers with"
        asked += f" {gpus_per_worker:g}"
        raise DeviceError(
            f"{asked} of a GPU each do not fit: {place} "
            f"has {gpus or 'no'} GPU{'s' if gpus != 1 else ''}. Ask for fewer workers or a smaller "
            "share, or for 0 GPUs a worker to train on processor cores."
        )
    return Share(workers or min(cores, fitting), gpus_per_worker)
