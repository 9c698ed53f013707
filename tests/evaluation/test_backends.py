"""Every backend is found by its name, and what it cannot do is refused in one sentence."""

from contextlib import closing

import pytest

from nas.errors import ConfigError, DeviceError
from nas.evaluation.backends import make_evaluator
from nas.evaluation.share import Execution


def test_local_backend_has_one_worker(task, data):
    with closing(make_evaluator(Execution("local", gpus_per_worker=0), task, data)) as evaluator:
        assert evaluator.workers == 1


@pytest.mark.parametrize(
    ("backend", "asked", "words"),
    [
        ("locl", {}, r"'locl' \(did you mean 'local'\?\).*ray, local"),
        ("local", {"workers": 2}, "one candidate after the other"),
        ("local", {"workers": 0}, "found 0, expected 1 or more"),
        ("local", {"ray_address": "auto"}, "no use for it"),
        ("local", {"gpus_per_worker": -1.0}, "found -1, expected 0, a fraction"),
        ("ray", {"workers": -3}, "workers: found -3"),  # before Ray starts
    ],
)
def test_backend_refuses(task, data, backend, asked, words):
    with pytest.raises(ConfigError, match=words):
        make_evaluator(Execution(backend, **asked), task, data)


def test_local_backend_without_the_gpu_that_was_asked_for(task, data):
    with pytest.raises(DeviceError, match="this machine has"):
        make_evaluator(Execution("local", gpus_per_worker=1.0), task, data)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:1", "Connection refused"),
        ("ray://127.0.0.1:1", "Connection refused"),
        ("head-node", "Invalid address format"),
        ("a.name.that.is.invalid:6379", "not known|resolution"),
    ],
)
def test_ray_backend_says_that_a_cluster_is_not_there(task, data, address, words):
    with pytest.raises(DeviceError, match=f"can be reached at '{address}': .*({words}).*Expected"):
        make_evaluator(Execution("ray", ray_address=address), task, data)
