"""Cores and GPUs are allocated as requested; errors name what a machine or a backend lacks."""

import math
import os
from collections import Counter
from itertools import product

import pytest

from nas.common.errors import ConfigError, DeviceError
from nas.evaluation.backends import make_evaluator
from nas.evaluation.execution import (
    Execution,
    Machine,
    WorkerResources,
    allocate,
    mps_runs,
)


def allocated(cores, gpus, workers=None, gpus_per_worker=None):
    execution = Execution(workers=workers, gpus_per_worker=gpus_per_worker)
    return allocate(execution, [Machine(cores, gpus)])


@pytest.mark.parametrize(
    ("offer", "counts", "expected"),
    [
        ((8, 0), (None, None), [0.0] * 8),
        ((8, 0), (3, None), [0.0] * 3),
        ((8, 0), ("3", None), [0.0] * 3),
        ((8, 0), ("3:99", None), [0.0] * 3),  # a cluster may grow
        ((8, 1), (None, None), [0.25] * 4),
        ((2, 1), (None, None), [0.5] * 2),
        ((64, 2), (None, None), [0.25] * 8),
        ((8, 1), (3, None), [0.3333] * 3),
        ((8, 2), (3, None), [1.0, 0.5, 0.5]),
        ((8, 4), (2, None), [1.0] * 2),
        ((6, 4), (None, None), [1.0] * 4),
        ((12, 8), (None, None), [1.0] * 8),
        ((16, 2), ("1:64", None), [0.25] * 8),
        ((16, 2), ("1:3", None), [1.0, 0.5, 0.5]),
        ((8, 1), (None, 0.0), [0.0] * 8),
        ((8, 2), (None, 0.5), [0.5] * 4),
        ((8, 4), (None, 1.0), [1.0] * 4),
        ((8, 2), (3, 0.5), [0.5] * 3),
    ],
)
def test_allocate_gives_each_worker_its_share_of_a_gpu(offer, counts, expected):
    workers = allocated(*offer, *counts)
    assert [worker.gpus for worker in workers] == expected
    assert {worker.device for worker in workers} == {"cuda" if expected[0] else "cpu"}


def test_more_workers_share_a_gpu_while_the_daemon_of_mps_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    assert not mps_runs()
    for process, runs in ((os.getpid(), True), (2**22 + 1, False)):  # above all process ids
        (tmp_path / "nvidia-cuda-mps-control.pid").write_text(f"{process}\n")
        assert mps_runs() == runs
    machines = [Machine(cores, 2, has_mps=True) for cores in (64, 12)]
    shares = [[worker.gpus for worker in allocate(Execution(), [m])] for m in machines]
    assert shares == [[1 / 8] * 16, [0.1666] * 12]


def test_more_gpus_than_cores_share_the_cores():
    assert allocated(2, 8) == [WorkerResources(1.0, 0.25)] * 8


CLUSTERS = [
    [Machine(cores, gpus, str(node)) for node in range(nodes)]
    for cores, gpus, nodes in product((1, 2, 3, 6, 8, 16, 64), (1, 2, 3, 4, 8), (1, 2, 4))
] + [
    [Machine(64, 0, "head"), Machine(16, 8, "worker")],
    [Machine(4, 4, "small"), Machine(12, 4, "large"), Machine(1, 2, "poor")],
]


@pytest.mark.parametrize("workers", [None, 3, 5, 8, 12, "1:64", "2:5"])
def test_no_gpu_is_idle_if_there_are_as_many_workers(workers):
    execution = Execution(workers=workers)
    for machines in CLUSTERS:
        if (execution.fewest or 0) > sum(max(m.cores, m.gpus) for m in machines if m.gpus):
            with pytest.raises(DeviceError, match="cores"):
                allocate(execution, machines)
            continue
        allocated = allocate(execution, machines)
        assert not isinstance(workers, int) or len(allocated) == workers
        busy = 0
        for machine in machines:
            here = [worker for worker in allocated if worker.node == machine.node]
            assert sum(worker.cores for worker in here) <= machine.cores
            # Workers of one share 1/k come in groups of k, so they fill whole GPUs.
            for share, count in Counter(worker.gpus for worker in here).items():
                assert count % round(1 / share) == 0
                busy += count // round(1 / share)
        assert busy == min(sum(m.gpus for m in machines), len(allocated)), machines


@pytest.mark.parametrize(
    ("workers", "gpus_per_worker", "words"),
    [
        (0, None, "workers: found 0, expected 1 or more"),
        (-2, None, "workers: found -2"),
        ("4:3", None, "workers: found 4:3, expected 1 or more, or MIN:MAX such as 4:64"),
        ("0:3", None, "workers: found 0:3"),
        (":3", None, "workers: found :3"),
        ("few", None, "workers: found few"),
        (None, -0.5, "found -0.5"),
        (None, 1.5, "found 1.5"),
        (None, 2.0, "found 2, expected .* or 1: a training uses one GPU"),
        (None, math.nan, "found nan"),
        (None, math.inf, "found inf"),
        (None, 1e-9, "found 1e-09"),
    ],
)
def test_impossible_counts_are_refused(workers, gpus_per_worker, words):
    with pytest.raises(ConfigError, match=words):
        Execution(workers=workers, gpus_per_worker=gpus_per_worker)


@pytest.mark.parametrize(
    ("offer", "counts", "words"),
    [
        ((4, 0), (5, None), "5 workers need 5 processor cores and this machine has 4"),
        ((0, 0), (None, None), "this machine has no processor core"),
        ((4, 0), (None, 0.5), "this machine has no GPUs"),
        ((4, 1), (3, 0.5), "3 workers with 0.5 of a GPU each do not fit: this machine has 1 GPU"),
        ((4, 2), (3, 1.0), "3 workers with 1 of a GPU each do not fit"),
    ],
)
def test_missing_hardware_is_named(offer, counts, words):
    with pytest.raises(DeviceError, match=words):
        allocated(*offer, *counts)


@pytest.mark.parametrize(
    ("backend", "options", "error", "words"),
    [
        ("locl", {}, ConfigError, r"'locl' \(did you mean 'local'\?\).*ray, local"),
        ("local", {"workers": 2}, ConfigError, "one candidate after the other"),
        ("local", {"ray_address": "auto"}, ConfigError, "no use for it"),
        ("local", {"gpus_per_worker": 1.0}, DeviceError, "this machine has"),
        ("ray", {"workers": 9999}, DeviceError, "9999 workers need 9999 .* and this machine has"),
    ],
)
def test_backend_refuses_what_it_does_not_support(task, data, backend, options, error, words):
    with pytest.raises(error, match=words):
        make_evaluator(Execution(backend, **options), task, data)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:1", "Connection refused"),
        ("ray://127.0.0.1:1", "Connection refused"),
        ("head-node", "Invalid address format"),
        ("a.name.that.is.invalid:6379", "not known|resolution"),
    ],
)
def test_unreachable_cluster_is_named(task, data, address, words):
    with pytest.raises(DeviceError, match=f"can be reached at '{address}': .*({words}).*Expected"):
        make_evaluator(Execution("ray", ray_address=address), task, data)
