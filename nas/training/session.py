"""The training loop: epochs of gradient steps, each followed by a look at held-out images.

No Python per image; on a GPU nothing waits for a result inside an epoch, and whole batches are
replays of a CUDA graph.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import torch

from nas.training.compiling import compiled, pays
from nas.training.curve import Epoch
from nas.training.hardware import Meter, resolve_precision
from nas.training.part import part_of
from nas.training.stepping import Pace, make_steps
from nas.training.work import Diverged, Judge, Learn, material

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from nas.tasks import ImageData, Task
    from nas.tasks.backbone import Backbone
    from nas.training.stepping import Graphs, Steps, Work

__all__ = ["JUDGED_AT_ONCE", "Diverged", "Session", "TimeIsUp", "judged_at_once"]

JUDGED_AT_ONCE: Final = 128
"""Images in a batch without gradients: on a CPU more no longer fit its second-level cache."""
JUDGED_AT_ONCE_ON_GPU: Final = 512


class TimeIsUp(Exception):  # noqa: N818 - an outcome, not a fault
    """The training took longer than it may."""


@dataclass
class Session:
    """One training under way: its limits, and the curve as far as it came.

    Attributes:
        graphs: captures steps, see ``graphs_on``; None does them call by call.
    """

    task: Task
    device: torch.device
    time_limit: float | None
    meter: Meter
    curve: list[Epoch] = field(default_factory=list)
    graphs: Graphs | None = None

    def __post_init__(self) -> None:
        self.precision = resolve_precision(self.task.precision, self.device)
        self._pace = Pace(self.device)
        self._steps: tuple[Steps, ...] = ()
        self._note = ""

    @property
    def execution(self) -> str:
        """How the steps ran, in words; empty before the first."""
        if not self._steps:
            return ""
        training, judging = self._steps
        said = [training.execution, self._note]
        said += [f"judging: {judging.execution}"] if judging.has_failed else []
        return ", ".join(filter(None, said))

    def fit(self, model: Backbone, data: ImageData, order_seed: int) -> float:
        """Train the model; the accuracy at the end, and the curve on the way."""
        task = self.task
        model.to(self.device)
        learn, judge = self._works(model, data)
        order = torch.Generator().manual_seed(order_seed)
        images, held_out = len(data.train), len(data.validation)
        accuracy = 0.0
        with self._compiled(learn, judge, images) as self._note:
            training = make_steps(learn, task.batch_size, self.graphs)
            judging = make_steps(judge, judged_at_once(self.device), self.graphs)
            self._steps = training, judging
            for epoch in range(1, task.epochs + 1):
                self._repeat(training, torch.randperm(images, generator=order))
                loss = learn.mean(images)
                count = held_out if epoch == task.epochs else min(task.curve_images, held_out)
                self._repeat(judging, torch.arange(count))
                accuracy = judge.accuracy(count)
                self.curve.append(Epoch(epoch, loss, accuracy))
        return accuracy

    def _works(self, model: Backbone, data: ImageData) -> tuple[Learn, Judge]:
        task, device = self.task, self.device
        held_out = part_of(data, "validation", task.patch, device, precision=self.precision)
        is_capturable = self.graphs is not None or device.type != "cpu"
        train, optimizer = material(
            model.parameters(),
            task,
            data,
            device,
            precision=self.precision,
            is_capturable=is_capturable,
        )
        learn = Learn(model, train, optimizer, self.precision, device)
        return learn, Judge(model, held_out, self.precision, device)

    def _repeat(self, steps: Steps, chosen: Tensor) -> None:
        """Do the work with all chosen images."""
        steps.work.model.train(steps.work.is_training)
        for batch in torch.split(chosen.to(self.device), steps.size):
            self._check_time()
            steps(batch)
            self._pace()

    @contextmanager
    def _compiled(self, learn: Learn, judge: Judge, images: int) -> Iterator[str]:
        """Within, attention is compiled if that pays; gives what to say of it, if anything."""
        if not pays(self.task, self._step_count(images), self.device):
            yield ""
            return
        sizes = (min(self.task.batch_size, images), judged_at_once(self.device))
        first = [torch.zeros(size, dtype=torch.int64, device=self.device) for size in sizes]
        tries: list[tuple[Work, Tensor]] = [(learn, first[0]), (judge, first[1])]
        with compiled(learn.model.attentions(), tries) as note:
            yield note

    def _step_count(self, images: int) -> int:
        return self.task.epochs * math.ceil(images / self.task.batch_size)

    def _check_time(self) -> None:
        if self.time_limit is not None and self.meter.elapsed > self.time_limit:
            raise TimeIsUp(f"stopped after its time limit of {self.time_limit:g} s")


def judged_at_once(device: torch.device) -> int:
    """Images in a batch without gradients there."""
    return JUDGED_AT_ONCE if device.type == "cpu" else JUDGED_AT_ONCE_ON_GPU
