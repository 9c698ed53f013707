"""Create the evaluator, the object that runs trainings, of the backend `ray` or `local`."""

from __future__ import annotations

from nas.evaluation.execution import Execution, Machine, allocate
from nas.evaluation.trial import Evaluator
from nas.tasks import Data, Task


def make_evaluator(
    execution: Execution, task: Task, data: Data, target: tuple[Task, Data] | None = None
) -> Evaluator:
    """Return a new evaluator, which runs trainings on a backend; the caller must close it.

    ``target`` is the task of trials with ``Trial.is_target``, with its data.

    Raises:
        DeviceError: the cluster cannot be reached, or there are too few cores or GPUs.
    """
    if execution.backend == "ray":
        from nas.evaluation.ray_backend import RayEvaluator

        return RayEvaluator(task, data, execution, target=target)
    import torch

    from nas.evaluation.local import LocalEvaluator
    from nas.training.hardware import check_computes, usable_gpus

    gpus = 0 if execution.gpus_per_worker == 0 else usable_gpus()
    resources, *_ = allocate(execution, [Machine(cores=1, gpus=gpus)])
    check_computes(torch.device(resources.device))
    limit = execution.time_limit
    return LocalEvaluator(task, data, device=resources.device, time_limit=limit, target=target)
