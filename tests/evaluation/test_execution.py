"""Cores and GPUs are shared out as asked, or the sentence says what is missing."""

import math

import pytest

from nas.common.errors import ConfigError, DeviceError
from nas.evaluation.execution import Execution, WorkerResources, allocate


def share(cores, gpus, workers=None, gpus_per_worker=None):
    asked = Execution(workers=workers, gpus_per_worker=gpus_per_worker)
    return allocate(asked, cores=cores, gpus=gpus)


@pytest.mark.parametrize(
    ("offer", "asked", "expected"),
    [
        ((8, 0), (None, None), WorkerResources(8, 0.0)),
        ((8, 0), (3, None), WorkerResources(3, 0.0)),
        ((8, 0), ("3", None), WorkerResources(3, 0.0)),
        ((8, 0), ("3:99", None), WorkerResources(3, 0.0)),  # a cluster may grow
        ((8, 1), (None, None), WorkerResources(4, 0.25)),
        ((2, 1), (None, None), WorkerResources(2, 0.5)),
        ((64, 2), (None, None), WorkerResources(8, 0.25)),
        ((8, 1), (3, None), WorkerResources(3, 0.3333)),
        ((8, 2), (3, None), WorkerResources(3, 0.5)),
        ((8, 4), (2, None), WorkerResources(2, 1.0)),
        ((8, 1), (None, 0.0), WorkerResources(8, 0.0)),
        ((8, 2), (None, 0.5), WorkerResources(4, 0.5)),
        ((8, 4), (None, 1.0), WorkerResources(4, 1.0)),
        ((8, 2), (3, 0.5), WorkerResources(3, 0.5)),
    ],
)
def test_share_out(offer, asked, expected):
    found = share(*offer, *asked)
    assert found == expected
    assert found.device == ("cuda" if expected.gpus else "cpu")


@pytest.mark.parametrize(("workers", "gpus"), [(n, g) for n in (1, 3, 7, 16) for g in (1, 2, 3)])
def test_even_share_fits_the_gpus(workers, gpus):
    found = share(64, gpus, workers)
    workers_per_gpu = math.floor(1 / found.gpus)
    assert found.workers == workers
    assert workers_per_gpu * gpus >= workers


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ((0, None), "workers: found 0, expected 1 or more"),
        ((-2, None), "workers: found -2"),
        (("4:3", None), "workers: found 4:3, expected 1 or more, or MIN:MAX such as 4:64"),
        (("0:3", None), "workers: found 0:3"),
        ((":3", None), "workers: found :3"),
        (("few", None), "workers: found few"),
        ((None, -0.5), "found -0.5"),
        ((None, 1.5), "found 1.5"),
        ((None, 2.0), "found 2, expected .* or 1: a training uses one GPU"),
        ((None, math.nan), "found nan"),
        ((None, math.inf), "found inf"),
        ((None, 1e-9), "found 1e-09"),
    ],
)
def test_counts_without_meaning_are_refused(asked, words):
    with pytest.raises(ConfigError, match=words):
        Execution(workers=asked[0], gpus_per_worker=asked[1])


@pytest.mark.parametrize(
    ("offer", "asked", "words"),
    [
        ((4, 0), (5, None), "5 workers need 5 processor cores and this machine has 4"),
        ((0, 0), (None, None), "this machine has no processor core"),
        ((4, 0), (None, 0.5), "this machine has no GPUs"),
        ((4, 1), (3, 0.5), "3 workers with 0.5 of a GPU each do not fit: this machine has 1 GPU"),
        ((4, 2), (3, 1.0), "3 workers with 1 of a GPU each do not fit"),
    ],
)
def test_missing_hardware_is_named(offer, asked, words):
    with pytest.raises(DeviceError, match=words):
        share(*offer, *asked)
