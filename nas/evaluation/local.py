"""Train in this process, one candidate after the other: `--backend local`.

Nothing to start and easy to debug. What it cannot do is outlive a candidate that takes its process
down, or end one that hangs inside a single operation; `ray_backend` can.
"""

from collections.abc import Iterator, Sequence

from nas.evaluation.choices import Choices, choose
from nas.evaluation.group import train_group
from nas.evaluation.guard import Train
from nas.evaluation.order import grouped
from nas.evaluation.record import Evaluation, Job
from nas.evaluation.trainer import train_candidate
from nas.tasks import ImageData, Task


class LocalEvaluator:
    """An `Evaluator` of one worker, this process.

    Args:
        task: what to train.
        data: the images to train it on.
        device: the torch device, "cpu" or "cuda".
        time_limit: seconds that one training may take; None for no limit.
        train: the training function.
    """

    def __init__(
        self,
        task: Task,
        data: ImageData,
        *,
        device: str = "cpu",
        time_limit: float | None = None,
        train: Train = train_candidate,
    ) -> None:
        self._task = task
        self._data = data
        self._device = device
        self._time_limit = time_limit
        self._train = train
        self._choices: Choices | None = None

    @property
    def workers(self) -> int:
        """One: trainings follow each other."""
        return 1

    def choose(self, seeds: int = 1) -> Choices:
        """Measure on this process's device.

        Raises:
            DeviceError: the device is not there.
        """
        return choose(self._task, self._data, self._device, seeds)

    def use(self, choices: Choices) -> None:
        """Compute so from now on."""
        self._choices = choices

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Evaluation]]:
        """Yield each job with its evaluation, in the order of the jobs.

        Where seeds of a genome train together, they come together, at the place of the first.
        """
        most = 1 if self._choices is None else self._choices.seeds_together
        for group in grouped(jobs, most) if most > 1 else [(job,) for job in jobs]:
            yield from zip(group, self._evaluate(group), strict=True)

    def close(self) -> None:
        """Do nothing: there is nothing to let go of."""

    def _evaluate(self, group: tuple[Job, ...]) -> list[Evaluation]:
        return train_group(
            group,
            self._task,
            self._data,
            train=self._train,
            choices=self._choices,
            device=self._device,
            time_limit=self._time_limit,
        )
