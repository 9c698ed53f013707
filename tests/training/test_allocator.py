"""Memory that tensors free stays with the process, up to a bound."""

from __future__ import annotations

import subprocess
import sys

import pytest

# In a process of its own, because the C library's settings cannot be undone.
SCRIPT = """
import resource, torch
from nas.training import allocator
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        torch.ones(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults())
allocator.keep_freed_memory()
for _ in range(12):  # until a free block fits with its alignment
    torch.ones(2**24)
print(faults())
allocator.MAX_KEPT = 0
before = allocator.resident_bytes()
allocator.keep_freed_memory()
print(before - allocator.resident_bytes())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc can be configured")
def test_freed_memory_is_reused_without_faults_and_returned_above_the_bound() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    default, kept, returned = map(int, done.stdout.split())
    assert default > 1000
    assert kept < 100
    assert returned > 2**25  # of the 64 MiB that were kept
