"""Memory that tensors free stays with the process, up to a bound."""

from __future__ import annotations

import subprocess
import sys

import pytest

# In a process of its own: nobody can take back what the C library is told.
COUNT = """
import resource, torch
from nas.training import allocator
if {is_kept}:
    allocator.keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(12):  # until what is free fits with what it takes to align it
    torch.ones(2**24)
before = faults()
for _ in range(5):
    torch.ones(2**24)
print(faults() - before)
allocator.MOST_KEPT = 0
held = allocator._resident_bytes()
allocator.keep_freed_memory()
print(held - allocator._resident_bytes())
"""


def told(is_kept: bool) -> list[int]:
    code = COUNT.format(is_kept=is_kept)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [int(line) for line in done.stdout.split()]


@pytest.mark.skipif(sys.platform != "linux", reason="other C libraries cannot be told")
def test_freed_memory_is_taken_again_without_a_fault_and_given_back_where_it_is_much() -> None:
    faults, given_back = told(is_kept=True)
    assert faults < 100
    assert given_back > 2**25  # of the 64 MiB that were kept
    assert told(is_kept=False)[0] > 1000
