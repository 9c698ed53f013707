"""The processor's name, and whether it multiplies in bfloat16, from Linux's /proc/cpuinfo."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Final

BFLOAT16_FLAGS: Final = frozenset({"amx_bf16", "avx512_bf16", "bf16"})
_CPUINFO: Final = Path("/proc/cpuinfo")


def processor_name() -> str:
    """Return the processor's model and number of cores, such as "AMD EPYC (2 cores)"."""
    model = _entry("model name") or platform.processor() or platform.machine() or "unknown"
    return f"{model} ({os.cpu_count()} cores)"


def multiplies_in_bfloat16() -> bool:
    """Return whether the processor has bfloat16 instructions; False if this is unknown."""
    flags = _entry("flags") or _entry("Features")  # names on x86 and on Arm
    return not BFLOAT16_FLAGS.isdisjoint(flags.split())


def _entry(name: str) -> str:
    try:
        lines = _CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    values = (line.partition(":")[2].strip() for line in lines if line.startswith(name))
    return next(values, "")
