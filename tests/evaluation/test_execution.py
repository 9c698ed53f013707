"""Cores and GPUs are allocated as requested; errors name what a machine or a backend lacks."""

import os

import pytest

from nas.common.errors import ConfigError, DeviceError
from nas.evaluation.execution import Execution, Machine, allocate, make_evaluator, mps_runs


def allocated(cores, gpus, workers=None, gpus_per_worker=None):
    execution = Execution(workers=workers, gpus_per_worker=gpus_per_worker)
    return allocate(execution, [Machine(cores, gpus)])


@pytest.mark.parametrize(
    ("offer", "counts", "expected"),
    [
        ((8, 0), (None, None), [0.0] * 8),
        ((8, 0), ("3:99", None), [0.0] * 3),  # a cluster may grow
        ((8, 1), (None, None), [0.25] * 4),
        ((8, 1), (3, None), [0.3333] * 3),
        ((8, 2), (3, None), [1.0, 0.5, 0.5]),
        ((16, 2), ("1:3", None), [1.0, 0.5, 0.5]),
        ((8, 1), (None, 0.0), [0.0] * 8),
        ((8, 2), (None, 0.5), [0.5] * 4),
    ],
)
def test_allocate_gives_each_worker_its_share_of_a_gpu(offer, counts, expected):
    workers = allocated(*offer, *counts)
    assert [worker.gpus for worker in workers] == expected


def test_more_workers_share_a_gpu_while_the_daemon_of_mps_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    assert not mps_runs()
    for process, runs in ((os.getpid(), True), (2**22 + 1, False)):  # above all process ids
        (tmp_path / "nvidia-cuda-mps-control.pid").write_text(f"{process}\n")
        assert mps_runs() == runs
    machines = [Machine(cores, 2, has_mps=True) for cores in (64, 12)]
    shares = [[worker.gpus for worker in allocate(Execution(), [m])] for m in machines]
    assert shares == [[1 / 8] * 16, [0.1666] * 12]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"backend": "loca"}, r"backend: found 'loca' \(did you mean 'local'"),
        ({"backend": "local", "workers": "1:8"}, "workers: found 1:8, but the local backend"),
        ({"backend": "local", "ray_address": "auto"}, "ray-address is given, but the local"),
    ],
)
def test_backend_refuses_what_it_cannot_do(options, words):
    with pytest.raises(ConfigError, match=words):
        Execution(**options)


@pytest.mark.parametrize(
    ("offer", "counts", "words"),
    [
        ((4, 0), (5, None), "5 workers need 5 processor cores and this machine has 4"),
        ((0, 0), (None, None), "this machine has no processor core"),
        ((4, 0), (None, 0.5), "this machine has no GPUs"),
        ((4, 1), (3, 0.5), "3 workers with 0.5 of a GPU each do not fit: this machine has 1 GPU"),
    ],
)
def test_missing_hardware_is_named(offer, counts, words):
    with pytest.raises(DeviceError, match=words):
        allocated(*offer, *counts)


def test_unreachable_cluster_is_named(task, data):
    execution = Execution("ray", ray_address="127.0.0.1:1")
    with pytest.raises(DeviceError, match=r"at '127\.0\.0\.1:1': .*Connection refused.*Expected"):
        make_evaluator(execution, task, data)
