"""Train a group of jobs: one, or several seeds of a genome that were chosen to train together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nas.evaluation.guard import train_guarded
from nas.evaluation.together import train_together
from nas.evaluation.trainer import train_candidate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nas.evaluation.choices import Choices
    from nas.evaluation.guard import Train
    from nas.evaluation.record import Evaluation, Job
    from nas.tasks import ImageData, Task


def train_group(
    jobs: Sequence[Job],
    task: Task,
    data: ImageData,
    *,
    train: Train,
    choices: Choices | None,
    device: str,
    time_limit: float | None,
) -> list[Evaluation]:
    """Train jobs that differ in their seeds alone; what one raises is its own failure.

    Args:
        train: how one job is trained; only ``train_candidate`` knows how to train several.
        choices: what to compute with; None goes by the task and by rules of thumb.
        time_limit: seconds that one of them may take.

    Returns:
        One evaluation a job.

    Raises:
        DeviceError: the device is missing, which is no candidate's fault.
    """
    if len(jobs) > 1 and train is train_candidate and choices is not None:
        with choices.applied(task) as chosen:
            return train_together(jobs, chosen, data, device=device, time_limit=time_limit)
    return [
        train_guarded(train, job, task, data, device=device, time_limit=time_limit, choices=choices)
        for job in jobs
    ]
