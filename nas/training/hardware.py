"""What a training asks of the machine it runs on: device, precision, threads, and what it used."""

from __future__ import annotations

import resource
import sys
import time
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import torch

from nas.common.errors import DeviceError
from nas.common.processor import multiplies_in_bfloat16, processor_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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


class Switch(NamedTuple):
    """Something that torch keeps for the whole process."""

    name: str
    get: Callable[[], Any]
    put: Callable[[Any], Any]


SWITCHES: Final = (
    Switch("the number of threads", torch.get_num_threads, torch.set_num_threads),
    Switch("the default dtype", torch.get_default_dtype, torch.set_default_dtype),
    Switch("whether there are gradients", torch.is_grad_enabled, torch.set_grad_enabled),
    Switch(
        "deterministic algorithms",
        torch.get_deterministic_debug_mode,
        torch.set_deterministic_debug_mode,
    ),
    Switch("anomaly detection", torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    Switch(
        "the precision of products",
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    *(
        Switch(
            f"autocast on {device}",
            partial(torch.is_autocast_enabled, device),
            partial(torch.set_autocast_enabled, device),
        )
        for device in ("cpu", "cuda")
    ),
    # None takes back what was asked for; outside nobody asks.
    Switch(
        "the default device", torch.get_default_device, lambda _: torch.set_default_device(None)
    ),
)


@contextmanager
def own_state() -> Iterator[list[str]]:
    """Within, torch has one thread; afterwards its global state is as it was, whatever was done.

    One thread, so that workers do not crowd each other and sums keep their order. A primitive that
    leaves gradients off or another default type behind would fail every later candidate. What was
    left changed is named, afterwards, in the list that is given. Random numbers are `seeded`'s.
    """
    before = [switch.get() for switch in SWITCHES]
    changed: list[str] = []
    torch.set_num_threads(1)
    try:
        # Contexts of torch's own, which bring back what holds outside.
        with torch.inference_mode(mode=False), torch.enable_grad():
            within = [switch.get() for switch in SWITCHES]
            try:
                yield changed
            finally:
                now = [switch.get() for switch in SWITCHES]
                ends = zip(SWITCHES, within, now, strict=True)
                changed += [switch.name for switch, old, new in ends if old != new]
    finally:
        for switch, value in zip(SWITCHES, before, strict=True):
            if switch.get() != value:
                switch.put(value)


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
