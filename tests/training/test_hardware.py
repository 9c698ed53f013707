"""Device, precision, and memory that freed tensors leave to the process."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
import torch

from nas.common.errors import DeviceError
from nas.training.hardware import Meter, check_computes, training_settings

CPU = torch.device("cpu")


def test_training_settings_are_restored():
    def settings():
        is_fused = torch.backends.cuda.cudnn_sdp_enabled()
        has_denormal = bool(torch.tensor([1e-30]) * 1e-10)
        return torch.get_num_threads(), is_fused, torch.is_grad_enabled(), has_denormal

    before = settings()
    with torch.no_grad(), training_settings():
        assert settings() == (1, False, True, False)
        torch.set_num_threads(2)
        torch.set_grad_enabled(False)
        torch.backends.cuda.enable_cudnn_sdp(True)
    assert settings() == before
    assert before[-1]


def test_a_paused_meter_counts_no_processor_time():
    meter, start = Meter(CPU), time.process_time()
    with meter.paused():
        while time.process_time() - start < 0.5:
            pass
    assert 0 < meter.core_seconds < 0.4


def test_a_gpu_that_cannot_compute_is_refused_with_the_cause(monkeypatch):
    def busy(*_, **__):
        raise RuntimeError("CUDA error: busy or unavailable\nCompile with TORCH_USE_CUDA_DSA")

    monkeypatch.setattr(torch, "ones", busy)
    check_computes(CPU)
    with pytest.raises(DeviceError, match=r"cannot compute: .*busy.*--gpus-per-worker 0") as caught:
        check_computes(torch.device("cuda"))
    assert "DSA" not in str(caught.value)  # advice on debugging


# In a process of its own, because the C library's settings cannot be undone.
SCRIPT = """
import resource, torch
from nas.training import hardware
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        torch.ones(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults())
hardware.keep_freed_memory()
for _ in range(12):  # until a free block fits with its alignment
    torch.ones(2**24)
print(faults())
hardware.MAX_KEPT = 0
def resident_pages():
    return int(open("/proc/self/statm").read().split()[1])
before = resident_pages()
hardware.keep_freed_memory()
print((before - resident_pages()) * resource.getpagesize())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only glibc can be configured")
def test_freed_memory_is_reused_without_faults_and_returned_above_the_bound() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    default, kept, returned = map(int, done.stdout.split())
    assert default > 1000
    assert kept < 100
    assert returned > 2**25  # of the 64 MiB that were kept
