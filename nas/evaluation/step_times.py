"""Training steps of mechanisms, measured in turns, and the work of a model beside attention."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import partial
from typing import Final, TypeAlias, cast

import torch
from torch.utils.flop_counter import FlopCounterMode

from nas.common.errors import ConfigError
from nas.costs.timing.measuring import in_turns, seconds_of
from nas.evaluation.study import resolve_under
from nas.tasks import Data, ModelTask
from nas.tasks.layers import seeded
from nas.training.candidate import build_model
from nas.training.dependence import Stack
from nas.training.hardware import Meter, hardware_name, training_settings
from nas.training.loop import TrainingLoop
from nas.training.steps import graphs_on
from nas.training.user_module import Mechanism, UserModule
from nas.training.user_process import ProcessEnded, call_in_process

SECONDS: Final = 15.0  # of processor time, after which no further round begins
MOST_ROUNDS: Final = 60

_Times: TypeAlias = tuple[str, list[list[float]]]


def step_times(
    mechanisms: Sequence[Mechanism],
    task: ModelTask,
    data: Data,
    time_limit: float | None,
    device: str,
) -> _Times:
    """Return the hardware and the seconds of a training step: (mechanisms, rounds).

    In each round every mechanism has its turn. ``device`` is "cpu" or "cuda". Times are processor
    times, on a GPU elapsed times. With a user's module all run in a process of their own, which
    ``time_limit``, in seconds, ends; ConfigError is raised if one fails there.
    """
    arguments = mechanisms, task, data, device
    if any(isinstance(mechanism, UserModule) for mechanism in mechanisms):
        try:
            return cast("_Times", call_in_process(_measure, *arguments, time_limit=time_limit))
        except ProcessEnded as error:
            raise ConfigError(f"training steps could not be timed: {error}.") from None
    return _measure(*arguments)


def _measure(mechanisms: Sequence[Mechanism], task: ModelTask, data: Data, device: str) -> _Times:
    meter = Meter(torch.device(device))
    with training_settings(), redirect_stdout(sys.stderr), seeded(0):
        steps = [_step(mechanism, task, data, meter) for mechanism in mechanisms]
        timers = [partial(seconds_of, step, meter.device) for step in steps]
        return hardware_name(meter.device), in_turns(timers, SECONDS, MOST_ROUNDS)


def _step(mechanism: Mechanism, task: ModelTask, data: Data, meter: Meter) -> Callable[[], None]:
    model = build_model(resolve_under(task, mechanism), task, data, 0).train()
    loop = TrainingLoop(model, task, data, meter, graphs=graphs_on(meter.device))
    size = min(task.batch_size, task.epoch_size(data))
    return partial(loop.step, torch.arange(size, device=meter.device))


def macs_beside_attention(task: ModelTask, data: Data) -> int:
    """Return the multiply-adds of one example in the model of a task, without its attention."""
    model = task.build_model(data, lambda _: Stack([]), seed=0).eval()
    example = task.examples(data, "validation", torch.device("cpu"), torch.float32)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        task.tally(model, example.batch(torch.arange(1)))
    return int(counter.get_total_flops()) // 2
