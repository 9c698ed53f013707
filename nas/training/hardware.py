"""Check GPUs, prepare a process for trainings, and measure time and peak memory."""

from __future__ import annotations

import ctypes
import platform
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final, Literal

import torch

from nas.common.errors import DeviceError
from nas.common.system import multiplies_in_bfloat16, processor_name
from nas.common.text import first_line, plural
from nas.costs.timing.measuring import one_thread

M_TRIM_THRESHOLD: Final = -1  # from malloc.h
M_MMAP_MAX: Final = -4
NEVER: Final = 2**31 - 1
BFLOAT16_WIDTH: Final = 256  # width of a model from which ``auto`` is bfloat16 on a GPU
MAX_KEPT: Final = 2**31  # resident bytes above which a process returns its free memory


def usable_gpus() -> int:
    """Return the number of GPUs; raise DeviceError with the cause if torch cannot use them."""
    count = torch.cuda.device_count()
    if count and not torch.cuda.is_available():
        try:
            torch.cuda.init()  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            raise DeviceError(
                f"torch cannot use this machine's {plural(count, 'GPU')}: {first_line(error)} "
                "Update the driver, or use --gpus-per-worker 0 to train on processor cores."
            ) from error
    return count


def check_computes(device: torch.device) -> None:
    """Raise DeviceError if a GPU multiplies no matrices, as when another process has it alone."""
    if device.type != "cuda":
        return
    try:
        ones = torch.ones(8, 8, device=device)
        (ones @ ones).sum().item()
    except RuntimeError as error:
        raise DeviceError(
            f"the GPU cannot compute: {first_line(error)}. Free or repair it, or use "
            "--gpus-per-worker 0 to train on processor cores."
        ) from error


@contextmanager
def training_settings() -> Iterator[None]:
    """Run a block with one thread and gradients, without denormal numbers and cuDNN's attention.

    With one thread, workers do not compete for cores and the order of sums is fixed. Weights of
    attention with forget gates fall to denormal numbers, for which a processor needs many times as
    long; they become 0. Attention by cuDNN, which torch prefers in bfloat16 on GPUs from the H100
    on, plans each new shape for half a second, and some gradients of masked attention are not
    finite (pytorch #196678).
    """
    before = torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.set_flush_denormal(True)
    try:
        with one_thread(), torch.inference_mode(mode=False), torch.enable_grad():
            yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)
        torch.set_flush_denormal(False)


def resolve_precision(
    precision: Literal["auto", "bfloat16", "float32"], device: torch.device, width: int
) -> Literal["bfloat16", "float32"]:
    """Return the precision of a training, see the field ``precision`` of ``ModelTask``.

    In a model narrower than ``BFLOAT16_WIDTH``, the time of a step on a GPU depends on its number
    of kernels. Mixed precision adds a third, because each weight and gradient is converted.
    """
    if precision != "auto":
        return precision
    if device.type == "cpu":
        is_fast = multiplies_in_bfloat16()
    else:
        is_wide = width >= BFLOAT16_WIDTH
        is_fast = is_wide and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bfloat16" if is_fast else "float32"


def hardware_name(device: torch.device) -> str:
    """Return the product name of the processor or GPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else processor_name()


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out; for a CPU torch raises a plain RuntimeError."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


def keep_freed_memory() -> None:
    """Let this process keep freed memory, since each training allocates the same blocks again.

    By default glibc returns large blocks to the system at once, and gets them back page by page,
    which takes up to a fifth of a training's processor time. If the process uses more than
    ``MAX_KEPT`` bytes, free blocks are returned. Other C libraries are left as they are.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    library = _configured_libc()
    _, pages, *_ = Path("/proc/self/statm").read_text(encoding="ascii").split()
    if int(pages) * resource.getpagesize() > MAX_KEPT:
        library.malloc_trim(0)


@cache
def _configured_libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None)
    library.malloc_trim.argtypes = [ctypes.c_size_t]
    library.mallopt(M_MMAP_MAX, 0)
    library.mallopt(M_TRIM_THRESHOLD, NEVER)
    return library


class Meter:
    """Measures wall time, processor time of all threads, and peak memory since its creation.

    The memory is what torch has allocated on a GPU. For a CPU it is that of the whole process,
    including libraries and memory kept from earlier trainings.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        else:
            with suppress(OSError):  # resets the peak, where the system permits it
                Path("/proc/self/clear_refs").write_text("5")
        self._wall, self._core = time.monotonic(), time.process_time()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Count no time within a ``with`` block, such as that of a check."""
        elapsed, core = self.elapsed, self.core_seconds
        yield
        self._wall, self._core = time.monotonic() - elapsed, time.process_time() - core

    @property
    def elapsed(self) -> float:
        """Wall time in seconds."""
        return time.monotonic() - self._wall

    @property
    def core_seconds(self) -> float:
        """Processor time in seconds."""
        return time.process_time() - self._core

    @property
    def peak_memory_bytes(self) -> int:
        """Peak memory in bytes."""
        if self.device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(self.device))
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
