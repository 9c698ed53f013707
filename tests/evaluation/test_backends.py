"""Every backend is found by its name, and what it cannot do is refused in one sentence."""

from contextlib import closing

import pytest

from nas.common.errors import ConfigError, DeviceError
from nas.evaluation.backends import make_evaluator
from nas.evaluation.execution import Execution


def test_local_backend_has_one_worker(task, data):
    with closing(make_evaluator(Execution("local", gpus_per_worker=0), task, data)) as evaluator:
        assert evaluator.workers == 1


@pytest.mark.parametrize(
    ("backend", "asked", "error", "words"),
    [
        ("locl", {}, ConfigError, r"'locl' \(did you mean 'local'\?\).*ray, local"),
        ("local", {"workers": 2}, ConfigError, "one candidate after the other"),
        ("local", {"ray_address": "auto"}, ConfigError, "no use for it"),
        ("local", {"gpus_per_worker": 1.0}, DeviceError, "this machine has"),
        ("ray", {"workers": 9999}, DeviceError, "9999 workers need 9999 .* and this machine has"),
    ],
)
def test_backend_refuses(task, data, backend, asked, error, words):
    with pytest.raises(error, match=words):
        make_evaluator(Execution(backend, **asked), task, data)


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
