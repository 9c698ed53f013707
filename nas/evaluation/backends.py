"""Choose who carries trainings out, by the name a person gives: `ray` or `local`."""

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from nas.config import near
from nas.errors import ConfigError
from nas.evaluation.share import share_out

if TYPE_CHECKING:
    from nas.evaluation.record import Evaluator
    from nas.tasks import ImageData, Task

Backend: TypeAlias = Literal["ray", "local"]
BACKENDS: Final[tuple[Backend, ...]] = get_args(Backend)


def make_evaluator(
    backend: str,
    task: "Task",
    data: "ImageData",
    *,
    workers: int | None = None,
    gpus_per_worker: float | None = None,
    ray_address: str | None = None,
    time_limit: float | None = None,
) -> "Evaluator":
    """Make the evaluator that a command asked for; the caller closes it.

    Args:
        backend: one of `BACKENDS`.
        task: what to train.
        data: the images to train it on.
        workers: trainings at once; None for one a processor core.
        gpus_per_worker: GPUs of a worker, fractions allowed; None uses what there is; 0 is none.
        ray_address: a Ray cluster to join; None starts one on this machine.
        time_limit: seconds that one training may take; None for no limit.

    Raises:
        ConfigError: there is no such backend, or it cannot do what was asked.
        DeviceError: the hardware or the cluster that was asked for is not there.
    """
    if backend == "ray":
        from nas.evaluation.ray_backend import RayEvaluator

        return RayEvaluator(
            task,
            data,
            workers=workers,
            gpus_per_worker=gpus_per_worker,
            address=ray_address,
            time_limit=time_limit,
        )
    if backend == "local":
        return _make_local(task, data, workers, gpus_per_worker, ray_address, time_limit)
    raise ConfigError(
        f"backend: found {backend!r}{near(backend, BACKENDS)}, expected one of "
        f"{', '.join(BACKENDS)}."
    )


def _make_local(
    task: "Task",
    data: "ImageData",
    workers: int | None,
    gpus_per_worker: float | None,
    ray_address: str | None,
    time_limit: float | None,
) -> "Evaluator":
    import torch

    from nas.evaluation.local import LocalEvaluator

    if ray_address is not None:
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
        gpus_per_worker=gpus_per_worker,
        place="this machine",
    )
    return LocalEvaluator(task, data, device=share.device, time_limit=time_limit)
