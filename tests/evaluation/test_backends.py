"""Every backend is found by its name, and what it cannot do is refused in one sentence."""

from contextlib import closing
from typing import Any

import pytest

from nas.errors import ConfigError, DeviceError
from nas.evaluation.backends import BACKENDS, Execution, make_evaluator
from nas.tasks import Data, Task


def test_local_backend_has_one_worker(task: Task, data: Data) -> None:
    with closing(make_evaluator(Execution("local", gpus_per_worker=0), task, data)) as evaluator:
        assert evaluator.workers == 1


def test_unknown_backend_suggests_the_near_one(task: Task, data: Data) -> None:
    assert BACKENDS == ("ray", "local")
    with pytest.raises(ConfigError, match=r"'locl' \(did you mean 'local'\?\).*ray, local"):
        make_evaluator(Execution("locl"), task, data)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"workers": 2}, "one candidate after the other"),
        ({"workers": 0}, "found 0, expected 1 or more"),
        ({"ray_address": "auto"}, "no use for it"),
        ({"gpus_per_worker": -1.0}, "found -1, expected 0, a fraction"),
    ],
)
def test_local_backend_refuses(task: Task, data: Data, asked: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_evaluator(Execution("local", **asked), task, data)


def test_local_backend_without_the_gpu_that_was_asked_for(task: Task, data: Data) -> None:
    with pytest.raises(DeviceError, match="this machine has"):
        make_evaluator(Execution("local", gpus_per_worker=1.0), task, data)


def test_ray_backend_counts_are_checked_before_ray_starts(task: Task, data: Data) -> None:
    with pytest.raises(ConfigError, match="workers: found -3"):
        make_evaluator(Execution("ray", workers=-3), task, data)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:1", "Connection refused"),
        ("ray://127.0.0.1:1", "Connection refused"),
        ("head-node", "Invalid address format"),
        ("a.name.that.is.invalid:6379", "not known|resolution"),
    ],
)
def test_ray_backend_says_that_a_cluster_is_not_there(
    task: Task, data: Data, address: str, words: str
) -> None:
    with pytest.raises(DeviceError, match=f"can be reached at '{address}': .*({words}).*Expected"):
        make_evaluator(Execution("ray", ray_address=address), task, data)
