"""Cores and GPUs are allocated as requested; errors name what a machine or a backend lacks."""

import math

import pytest

from nas.common.errors import ConfigError, DeviceError
from nas.evaluation.execution import Execution, WorkerResources, allocate, make_evaluator


def allocated(cores, gpus, workers=None, gpus_per_worker=None):
    execution = Execution(workers=workers, gpus_per_worker=gpus_per_worker)
    return allocate(execution, cores=cores, gpus=gpus)


@pytest.mark.parametrize(
    ("offer", "counts", "expected"),
    [
        ((8, 0), (None, None), (8, 0.0)),
        ((8, 0), (3, None), (3, 0.0)),
        ((8, 0), ("3", None), (3, 0.0)),
        ((8, 0), ("3:99", None), (3, 0.0)),  # a cluster may grow
        ((8, 1), (None, None), (4, 0.25)),
        ((2, 1), (None, None), (2, 0.5)),
        ((64, 2), (None, None), (8, 0.25)),
        ((8, 1), (3, None), (3, 0.3333)),
        ((8, 2), (3, None), (3, 0.5)),
        ((8, 4), (2, None), (2, 1.0)),
        ((8, 1), (None, 0.0), (8, 0.0)),
        ((8, 2), (None, 0.5), (4, 0.5)),
        ((8, 4), (None, 1.0), (4, 1.0)),
        ((8, 2), (3, 0.5), (3, 0.5)),
    ],
)
def test_allocate_gives_workers_and_gpus(offer, counts, expected):
    resources = allocated(*offer, *counts)
    assert resources == WorkerResources(*expected)
    assert resources.device == ("cuda" if resources.gpus else "cpu")


@pytest.mark.parametrize(("workers", "gpus"), [(n, g) for n in (1, 3, 7, 16) for g in (1, 2, 3)])
def test_even_fractions_fit_the_gpus(workers, gpus):
    resources = allocated(64, gpus, workers)
    assert resources.workers == workers
    assert math.floor(1 / resources.gpus) * gpus >= workers


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
