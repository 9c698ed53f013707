"""The machine that a training runs on: device, precision, torch's global state, measurements."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import torch

from nas.common.errors import DeviceError
from nas.common.processor import multiplies_in_bfloat16, processor_name


def check_device(name: str) -> torch.device:
    """The device of that name.

    Raises:
        DeviceError: the device is unknown or missing.
    """
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise DeviceError(f"device {name!r} is not known here; expected cpu, cuda or cuda:<index>.")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cuda" and (device.index or 0) >= count:
        raise DeviceError(
            f"device {name!r} was asked for and PyTorch sees {count or 'no'} GPUs here; "
            "use --gpus-per-worker 0 to train on processor cores."
        )
    return device


def resolve_precision(
    precision: Literal["auto", "bfloat16", "float32"], device: torch.device
) -> Literal["bfloat16", "float32"]:
    """The precision to train in; ``auto`` is bfloat16 if the hardware multiplies in it."""
    if precision != "auto":
        return precision
    if device.type == "cuda":
        is_fast = bool(torch.cuda.is_bf16_supported(including_emulation=False))
    else:
        is_fast = multiplies_in_bfloat16()
    return "bfloat16" if is_fast else "float32"


def hardware_name(device: torch.device) -> str:
    """The product name of the processor or GPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else processor_name()


SETTINGS: Final[dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]]] = {
    "the number of threads": (torch.get_num_threads, torch.set_num_threads),
    "the default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "whether there are gradients": (torch.is_grad_enabled, torch.set_grad_enabled),
    "deterministic algorithms": (
        torch.get_deterministic_debug_mode,
        torch.set_deterministic_debug_mode,
    ),
    "anomaly detection": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    "the precision of products": (
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    **{
        f"autocast on {device}": (
            partial(torch.is_autocast_enabled, device),
            partial(torch.set_autocast_enabled, device),
        )
        for device in ("cpu", "cuda")
    },
    # None undoes set_default_device, which only candidates may have called.
    "the default device": (torch.get_default_device, lambda _: torch.set_default_device(None)),
}
"""torch's settings for the whole process: functions that get and set them."""


def settings() -> dict[str, Any]:
    """The present values of ``SETTINGS``."""
    return {name: get() for name, (get, _) in SETTINGS.items()}


@contextmanager
def isolated_torch_state() -> Iterator[list[str]]:
    """A context with one thread and gradients, which restores torch's settings on exit.

    With one thread workers do not compete for cores, and the order of sums is fixed. Without the
    restored settings, a primitive that disables gradients or changes the default dtype would make
    every later candidate fail. `nas.tasks.seeds.seeded` handles random generators.

    Yields:
        A list, filled on exit with the names of the settings that were changed in the context.
    """
    before = settings()
    changed: list[str] = []
    torch.set_num_threads(1)
    try:
        with torch.inference_mode(mode=False), torch.enable_grad():
            inside = settings()
            try:
                yield changed
            finally:
                changed += [name for name, value in settings().items() if value != inside[name]]
    finally:
        for name, (get, set_) in SETTINGS.items():
            if get() != before[name]:
                set_(before[name])


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out; torch's CPU allocator raises a plain RuntimeError."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


class Meter:
    """Measures time and peak memory since its creation.

    The memory is that of the GPU; on a processor it is that of the whole process, which includes
    libraries and memory kept from earlier trainings (allocator.py).
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        else:
            with suppress(OSError):  # resets the peak; Linux only
                Path("/proc/self/clear_refs").write_text("5")
        self._wall, self._core = time.monotonic(), time.process_time()

    @property
    def elapsed(self) -> float:
        """Wall time so far, s."""
        return time.monotonic() - self._wall

    @property
    def core_seconds(self) -> float:
        """Processor time of all threads so far, s."""
        return time.process_time() - self._core

    @property
    def peak_memory_bytes(self) -> int:
        """Peak memory so far, bytes."""
        if self.device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(self.device))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak
