"""Whether several seeds of a genome train faster in one pass or in turn: measured, never assumed.

One pass saves the fixed cost of operations, which is a share of a step that shrinks with the batch,
and pays for it: stacked weights have no fused kernels, and s times the numbers no longer fit a
cache. Which weighs more depends on processor, precision and sizes of a task.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Final

import torch

from nas.evaluation import trainer
from nas.evaluation.record import Job
from nas.evaluation.together import stack
from nas.mechanisms import mechanism
from nas.tasks.seeds import seeded
from nas.training.hardware import check_device, one_thread, resolve_precision
from nas.training.stepping import graphs_on, make_steps
from nas.training.work import Learn, material
from nas.training.work_together import learning

if TYPE_CHECKING:
    from collections.abc import Callable

    from nas.genome import Genome
    from nas.tasks import ImageData, Task
    from nas.training.stepping import Work

LEAST_GAIN: Final = 1.05
"""How many times as fast one pass has to be; less may be the clock's noise."""
STEPS: Final = 4
ROUNDS: Final = 5


def is_faster_together(task: Task, data: ImageData, device: str, seeds: int) -> bool:
    """Whether a step of so many seeds in one pass takes less time than their steps in turn.

    Measured with standard attention, in interleaved rounds: a mechanism whose own kernel takes its
    plain form under vmap gains less, or loses. Compiled blocks train in turn: what is generated for
    them knows no vmap.

    Raises:
        DeviceError: the device is not there.
    """
    place = check_device(device)
    if seeds < 2 or task.compile != "never":
        return False
    try:
        with one_thread(), seeded(0):
            works = forms(mechanism("mha").genome, task, data, place, seeds)
            seconds = [_seconds(work, place) for _ in range(ROUNDS + 1) for work in works]
    except RuntimeError:  # what one pass has no memory or no operation for is done in turn
        return False
    # The first round warms up.
    gains = [a / b for a, b in zip(seconds[2::2], seconds[3::2], strict=True)]
    return statistics.median(gains) >= LEAST_GAIN


def forms(
    genome: Genome, task: Task, data: ImageData, device: torch.device, seeds: int
) -> tuple[Callable[[], None], Callable[[], None]]:
    """A training step of so many seeds, on the same first images: in turn, and in one pass."""
    trainer.load_optimizers()
    # A schedule ends after the training's steps; what is measured may be repeated for longer.
    task = task.model_copy(update={"schedule": "constant"})
    precision = resolve_precision(task.precision, device)
    models, stacked = stack([Job("", genome, seed) for seed in range(seeds)], task, data, device)
    works: list[Work] = [learning(stacked, task, data, precision, device)]
    for model in models:
        part, optimizer = material(
            model.parameters(),
            task,
            data,
            device,
            precision=precision,
            is_capturable=device.type != "cpu",
        )
        works.append(Learn(model, part, optimizer, precision, device))
    for work in works:
        work.model.train()
    together, *alone = (make_steps(work, task.batch_size, graphs_on(device)) for work in works)
    chosen = torch.arange(task.batch_size, device=device) % len(data.train)
    columns = chosen.unsqueeze(1).expand(-1, seeds).contiguous()

    def in_turn() -> None:
        for steps in alone:
            steps(chosen)

    def in_one_pass() -> None:
        together(columns)

    return in_turn, in_one_pass


def _seconds(work: Callable[[], None], device: torch.device) -> float:
    """Of some steps: processor time on a processor, elapsed time on a GPU."""
    if device.type == "cpu":
        start = time.process_time()
        for _ in range(STEPS):
            work()
        return time.process_time() - start
    torch.cuda.synchronize(device)
    start = time.perf_counter()
    for _ in range(STEPS):
        work()
    torch.cuda.synchronize(device)
    return time.perf_counter() - start
