"""What a training asks of the machine it runs on: device, precision, threads, and what it used."""

from __future__ import annotations

import resource
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch

from nas.errors import DeviceError
from nas.processor import multiplies_in_bfloat16, processor_name

if TYPE_CHECKING:
    from collections.abc import Iterator


def check_device(name: str) -> torch.device:
    """The device of that name.

    Raises:
        DeviceError: it is unknown, or not in this machine.
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
    asked: Literal["auto", "bfloat16", "float32"], device: torch.device
) -> Literal["bfloat16", "float32"]:
    """The precision to train in: ``auto`` is bfloat16 where the hardware multiplies in it."""
    if asked != "auto":
        return asked
    if device.type == "cuda":
        is_fast = bool(torch.cuda.is_bf16_supported(including_emulation=False))
    else:
        is_fast = multiplies_in_bfloat16()
    return "bfloat16" if is_fast else "float32"


def hardware_name(device: torch.device) -> str:
    """The processor or GPU, as its maker calls it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else processor_name()


@contextmanager
def own_state() -> Iterator[None]:
    """Within, torch has one thread; afterwards its global state is as it was, whatever was done.

    One thread, so that workers do not crowd each other and sums keep their order. A primitive that
    leaves gradients off or another default type behind would fail every later candidate.
    """
    threads, dtype, device = (
        torch.get_num_threads(), torch.get_default_dtype(), torch.get_default_device()
    )  # fmt: skip
    is_deterministic = torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)
    try:
        with torch.enable_grad():  # which also brings back what holds outside
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        if torch.are_deterministic_algorithms_enabled() != is_deterministic:
            torch.use_deterministic_algorithms(is_deterministic)
        if torch.get_default_device() != device:
            torch.set_default_device(None)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran short; torch's CPU allocator has no exception of its own."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


class Meter:
    """Measures from its making on.

    Memory is the GPU's where there is one; else the whole process's peak, libraries included, and
    what it keeps of earlier trainings (allocator.py).
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        else:
            with suppress(OSError):  # Linux alone lets it start anew, for the next candidate
                Path("/proc/self/clear_refs").write_text("5")
        self._wall, self._core = time.monotonic(), time.process_time()

    @property
    def elapsed(self) -> float:
        """Seconds so far."""
        return time.monotonic() - self._wall

    @property
    def core_seconds(self) -> float:
        """Processor time so far, of all threads."""
        return time.process_time() - self._core

    @property
    def peak_memory_bytes(self) -> int:
        """Most memory so far."""
        if self.device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(self.device))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak
