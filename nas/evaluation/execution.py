"""The options of workers, the division of cores and GPUs among them, and the choice of a backend.

Importing this module imports neither torch nor ray.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nas.common.config import near
from nas.common.errors import ConfigError, DeviceError
from nas.common.text import plural

if TYPE_CHECKING:
    from nas.evaluation.trial import Evaluator
    from nas.tasks import Data, Task

BACKENDS: Final = ("ray", "local")
# Default numbers of workers that share a GPU: small models wait for Python more than for the GPU.
# Under MPS, NVIDIA's service, kernels of several processes run at the same time.
WORKERS_PER_GPU: Final = 4
WORKERS_UNDER_MPS: Final = 8
_GRAIN: Final = 10_000  # Ray divides a GPU into this many parts


@dataclass(frozen=True, slots=True)
class Execution:
    """Where, and on how many workers, trainings run. On processors this changes no result.

    ConfigError is raised if a number is not valid, or the backend is unknown or lacks an option.

    Attributes:
        backend: "ray" (worker processes on one machine or on a cluster) or "local" (this process,
            with one worker and without a cluster).
        workers: number of trainings that run at once; None for one per processor core. With the
            text "MIN:MAX", MIN workers (``fewest``) must fit at the start, and up to MAX (``most``)
            run as a cluster grows.
        gpus_per_worker: share of one GPU for each worker, from 0 to 1; None divides all GPUs among
            the workers, 0 trains on processor cores.
        ray_address: a Ray cluster to join, as "host:port" or "auto"; None starts one here.
        time_limit: longest duration of one training in seconds; None for no limit.
        start_seconds: seconds without any worker after which the command ends with an error.
    """

    backend: str = "ray"
    workers: int | str | None = None
    gpus_per_worker: float | None = None
    ray_address: str | None = None
    time_limit: float | None = 1800.0
    start_seconds: float = 300.0
    fewest: int | None = field(init=False)
    most: int | None = field(init=False)

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise ConfigError(
                f"backend: found {self.backend!r}{near(self.backend, BACKENDS)}, expected one of "
                f"{', '.join(BACKENDS)}."
            )
        if self.backend == "local" and self.ray_address is not None:
            raise ConfigError("ray-address is given, but the local backend has no use for it.")
        match = re.fullmatch(r"(\d+)(?::(\d+))?", str(self.workers))
        counts = [int(count) for count in match.groups() if count] if match else []
        is_sorted = sorted([1, *counts]) == [1, *counts]
        if self.workers is not None and not (counts and is_sorted):
            raise ConfigError(
                f"workers: found {self.workers}, expected 1 or more, or MIN:MAX such as 4:64."
            )
        for name, count in zip(("fewest", "most"), (*counts, None, None), strict=False):
            object.__setattr__(self, name, count)
        if self.backend == "local" and counts[-1:] not in ([], [1]):
            raise ConfigError(
                f"workers: found {self.workers}, but the local backend trains one candidate after "
                "the other: expected 1, or the backend ray."
            )
        gpus = self.gpus_per_worker or 0.0
        if not 0 <= gpus <= 1:
            raise ConfigError(
                f"gpus-per-worker: found {gpus:g}, expected 0, a fraction of one GPU such as 0.25, "
                "or 1: a training uses one GPU."
            )
        for name in ("time_limit", "start_seconds"):
            seconds = getattr(self, name)
            if seconds is not None and not seconds > 0:  # NaN is not above 0 either
                option = name.replace("_", "-")
                raise ConfigError(f"{option}: found {seconds}; expected a number above 0.")


@dataclass(frozen=True, slots=True)
class Machine:
    """The resources of a machine."""

    cores: int
    gpus: int = 0
    node: str = ""  # Ray's id of the machine; empty outside a cluster
    has_mps: bool = False  # NVIDIA's MPS is known to run on it


def mps_runs() -> bool:
    """Return whether the control daemon of NVIDIA's MPS runs on this machine.

    A daemon outside of this process's container is not found. https://docs.nvidia.com/deploy/mps/
    """
    folder = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps")  # noqa: S108 - NVIDIA's
    try:
        os.kill(int((folder / "nvidia-cuda-mps-control.pid").read_text("ascii")), 0)
    except PermissionError:  # of another user
        return True
    except (OSError, ValueError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class WorkerResources:
    """The resources of one worker."""

    gpus: float = 0.0  # 1, 1/k for a GPU that k workers share, or 0 to train on the processor
    cores: float = 1.0  # below 1 if a machine has more GPUs than cores
    node: str = ""  # Ray's id of the machine on which the worker starts; empty for any machine


def allocate(execution: Execution, machines: Sequence[Machine]) -> list[WorkerResources]:
    """Return the cores and GPUs of each worker that starts at the beginning.

    By default there is one worker per core, or as many share each GPU as `WORKERS_PER_GPU`,
    `WORKERS_UNDER_MPS` and the cores of its machine allow; every GPU has a worker. DeviceError is
    raised if the machines have too few cores or GPUs.
    """
    workers, gpus_per_worker = execution.fewest, execution.gpus_per_worker
    cores, gpus = sum(m.cores for m in machines), sum(m.gpus for m in machines)
    address = execution.ray_address
    place = f"the Ray cluster at {address}" if address else "this machine"
    if cores < 1:
        raise DeviceError(f"{place} has no processor core, and each worker needs one.")
    if gpus_per_worker is None and gpus:
        return _share_gpus(execution, [m for m in machines if m.gpus], place)
    if workers is not None and workers > cores:
        raise DeviceError(
            f"{workers} workers need {workers} processor cores and {place} has {cores}: ask for "
            f"{cores} workers or fewer."
        )
    if not gpus_per_worker:
        return [WorkerResources()] * (workers or cores)
    fitting = gpus * math.floor(1 / gpus_per_worker)
    if fitting < (workers or 1):
        count = plural(workers, "worker") if workers else "workers"
        raise DeviceError(
            f"{count} with {gpus_per_worker:g} of a GPU each do not fit: {place} has "
            f"{plural(gpus, 'GPU') if gpus else 'no GPUs'}. Ask for fewer workers or a smaller "
            "share, or for 0 GPUs a worker to train on processor cores."
        )
    return [WorkerResources(gpus_per_worker)] * (workers or min(cores, fitting))


def _share_gpus(
    execution: Execution, machines: Sequence[Machine], place: str
) -> list[WorkerResources]:
    """Divide the GPUs evenly among workers, within each machine's cores.

    Ray may assign workers to the GPUs of a machine in any order. So the shares of a machine fill
    its GPUs exactly, and workers with larger shares start first.
    """
    shares = [WORKERS_UNDER_MPS if m.has_mps else WORKERS_PER_GPU for m in machines]
    each = [max(1, min(n, m.cores // m.gpus)) for n, m in zip(shares, machines, strict=True)]
    number = sum(count * m.gpus for count, m in zip(each, machines, strict=True))
    if execution.most is not None:
        number = min(max(number, execution.fewest or 1), execution.most)
    elif execution.fewest is not None:
        number = execution.fewest
    rooms = [max(m.cores, m.gpus) for m in machines]
    if number > sum(rooms):
        raise DeviceError(
            f"{number} workers need {number} processor cores on machines with GPUs, and {place} "
            f"has {sum(rooms)}: ask for {sum(rooms)} workers or fewer."
        )
    counts = [[0] * m.gpus for m in machines]  # workers of each GPU, by machine
    for _ in range(number):
        free = [i for i, room in enumerate(rooms) if sum(counts[i]) < room]
        i = min(free, key=lambda i: (min(counts[i]), sum(counts[i]) - rooms[i]))
        counts[i][counts[i].index(min(counts[i]))] += 1
    resources = [
        WorkerResources(_part(1, count), _part(machine.cores, sum(of_machine)), machine.node)
        for machine, of_machine in zip(machines, counts, strict=True)
        for count in of_machine
        for _ in range(count)
    ]
    return sorted(resources, key=lambda worker: -worker.gpus)


def _part(whole: int, parts: int) -> float:
    """Return whole / parts, but at most 1, rounded down to a multiple of 1 / `_GRAIN`."""
    return min(_GRAIN, _GRAIN * whole // parts) / _GRAIN


def make_evaluator(
    execution: Execution, task: Task, data: Data, target: tuple[Task, Data] | None = None
) -> Evaluator:
    """Return a new evaluator, which runs trainings on a backend; the caller must close it.

    ``target`` is the target task with its data, see `Trial.is_target`. DeviceError is raised if the
    cluster cannot be reached, or has too few cores or GPUs.
    """
    if execution.backend == "ray":
        from nas.evaluation.ray_backend import RayEvaluator

        return RayEvaluator(task, data, execution, target=target)
    import torch

    from nas.evaluation.trainer import LocalEvaluator
    from nas.training.hardware import check_computes, usable_gpus

    gpus = 0 if execution.gpus_per_worker == 0 else usable_gpus()
    resources, *_ = allocate(execution, [Machine(cores=1, gpus=gpus)])
    device, limit = "cuda" if resources.gpus else "cpu", execution.time_limit
    check_computes(torch.device(device))
    return LocalEvaluator(task, data, device=device, time_limit=limit, target=target)
