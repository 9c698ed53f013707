"""The most memory that something holds at once, of what PyTorch gives out on a processor."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from torch.profiler import ProfilerActivity, profile

if TYPE_CHECKING:
    from collections.abc import Callable


def peak_bytes(work: Callable[[], object]) -> int:
    """The profiler's record of every allocation, added up; exact where resident pages are not."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    changes = sorted((e["ts"], e["args"]["Bytes"]) for e in events if e["name"] == "[memory]")
    held = peak = 0
    for _, change in changes:
        held += change
        peak = max(peak, held)
    return peak
