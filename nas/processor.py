"""What this machine says of its processor; asked of Linux alone, without torch."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Final

BFLOAT16_FLAGS: Final = frozenset({"amx_bf16", "avx512_bf16", "bf16"})
_CPUINFO: Final = Path("/proc/cpuinfo")


def processor_name() -> str:
    """The model as the maker calls it, and the number of cores."""
    model = _entry("model name") or platform.processor() or platform.machine() or "unknown"
    return f"{model} ({os.cpu_count()} cores)"


def multiplies_in_bfloat16() -> bool:
    """Whether it has instructions for that; elsewhere than on Linux nobody knows."""
    flags = _entry("flags") or _entry("Features")  # x86, Arm
    return not BFLOAT16_FLAGS.isdisjoint(flags.split())


def _entry(name: str) -> str:
    """What the system says about the first core; nothing if it does not say."""
    try:
        lines = _CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    found = (line.partition(":")[2].strip() for line in lines if line.startswith(name))
    return next(found, "")
