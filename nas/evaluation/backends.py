"""Choose who carries trainings out, by the name a person gives: `ray` or `local`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from nas.config import near
from nas.errors import ConfigError
from nas.evaluation.share import share_out

if TYPE_CHECKING:
    from nas.evaluation.trial import Evaluator
    from nas.tasks import Data, Task

Backend: TypeAlias = Literal["ray", "local"]
BACKENDS: Final[tuple[Backend, ...]] = get_args(Backend)


@dataclass(frozen=True, slots=True)
class Execution:
    """Who trains, and on what; it changes no result.

    Attributes:
        backend: one of `BACKENDS`.
        workers: trainings at once; None for one a processor core.
        gpus_per_worker: GPUs of a worker, fractions allowed; None uses what there is; 0 is none.
        ray_address: a Ray cluster to join; None starts one on this machine.
        time_limit: seconds that one training may take; None for no limit.
        start_seconds: how long to wait for a cluster that has no worker for us.
    """

    backend: str = "ray"
    workers: int | None = None
    gpus_per_worker: float | None = None
    ray_address: str | None = None
    time_limit: float | None = None
    start_seconds: float = 300.0


def make_evaluator(execution: Execution, task: Task, data: Data) -> Evaluator:
    """Make the evaluator that a command asked for; the caller closes it.

    Raises:
        ConfigError: there is no such backend, or it cannot do what was asked.
        DeviceError: the hardware or the cluster that was asked for is not there.
    """
    if execution.backend == "ray":
        from nas.evaluation.ray_backend import RayEvaluator

        asked = asdict(execution)
        del asked["backend"]
        return RayEvaluator(task, data, **asked)
    if execution.backend == "local":
        return _make_local(execution, task, data)
    raise ConfigError(
        f"backend: found {execution.backend!r}{near(execution.backend, BACKENDS)}, expected one of "
        f"{', '.join(BACKENDS)}."
    )


def _make_local(execution: Execution, task: Task, data: Data) -> Evaluator:
    import torch

    from nas.evaluation.local import LocalEvaluator

    workers = execution.workers
    if execution.ray_address is not None:
        raise ConfigError("ray-address is given, but the local backend has no use for it.")
    if workers is not None and workers > 1:
        raise ConfigError(
            f"workers: found {workers}, but the local backend trains one candidate after the "
            "other: expected 1, or the backend ray."
        )
    share = share_out(
        cores=1,
        gpus=torch.cuda.device_count(),
        workers=workers,
        gpus_per_worker=execution.gpus_per_worker,
        place="this machine",
    )
    return LocalEvaluator(task, data, device=share.device, time_limit=execution.time_limit)
