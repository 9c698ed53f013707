"""Tasks at other sizes, whose trainings need a multiple of the compute."""

from __future__ import annotations

import math

from nas.common.errors import TaskError
from nas.tasks.base import ModelTask

WIDE_HEAD = 32  # width from which on a head's width stays a multiple of 8, as kernels prefer


def resized(task: ModelTask, compute: float) -> ModelTask:
    """Return a task with about ``compute`` times the compute, named "TASK WIDTHxDEPTH".

    The weights of the layers and the examples of the training are both multiplied by about the
    square root of ``compute`` (Hoffmann et al. 2022), width and depth by equal factors. The number
    of heads stays. TaskError is raised if no model is so small.
    """
    step = math.lcm(4, task.heads * (8 if task.width // task.heads >= WIDE_HEAD else 2))
    factor = math.sqrt(compute)
    shapes = [
        (width, depth)
        for width in range(step, 4 * math.ceil(task.width * factor) + step, step)
        for depth in range(1, 4 * math.ceil(task.depth * factor) + 1)
    ]

    def distance(shape: tuple[int, int]) -> float:
        width, depth = shape[0] / task.width, shape[1] / task.depth
        return math.log(width**2 * depth / factor) ** 2 + math.log(width / depth) ** 2 / 16

    width, depth = min([*shapes, (task.width, task.depth)], key=distance)
    weights = width**2 * depth / (task.width**2 * task.depth)
    if abs(math.log(weights / factor)) > math.log(1.5):
        raise TaskError(
            f"task {task.name!r} cannot be trained with {compute:g} times its compute; expected a "
            "larger number, or a task with a wider model."
        )
    sizes = {"name": f"{task.name} {width}x{depth}", "width": width, "depth": depth}
    return task.longer(weights).model_copy(update=sizes)
