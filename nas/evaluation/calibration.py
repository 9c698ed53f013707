"""Measure the unit times behind ``time_ms`` as the trainings of a task run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nas.training.hardware import check_device, own_state, resolve_precision

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nas.tasks import Task


def calibrate_for(task: Task, device: str) -> Mapping[str, Any]:
    """What ``nas.timing.calibrate`` measures in this process.

    Raises:
        DeviceError: the device is not there.
    """
    from nas.timing import calibrate

    place = check_device(device)
    with own_state():
        measured: Mapping[str, Any] = calibrate(
            task.sizes,
            batch=task.batch_size,
            precision=resolve_precision(task.precision, place),
            device=device,
            is_causal=task.is_causal,
            qkv_bias=task.qkv_bias,
        )
    return measured
