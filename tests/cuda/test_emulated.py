"""Tests that need CUDA, on an emulated runtime: each file ``emulated_*.py`` in its own process.

The libraries must be loaded before torch, so this process cannot run the tests itself.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cuda import emulation

REASON = emulation.missing()
pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    return emulation.build(tmp_path_factory.mktemp("cuda"))


def run(environment, *arguments):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-2000:]


FILES = sorted(emulation.HERE.glob("emulated_*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_on_an_emulated_gpu(path, environment):
    run(environment, str(path))


def test_trainings_that_need_a_gpu_run_without_their_numbers(environment):
    """The tests marked ``gpu``: their parameters exist, and their steps are captured."""
    run(environment, "-m", "gpu", str(emulation.HERE.parent / "training"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["emulated_training.py", "slow_benchmark.py", "emulated_errors.py"]
)
def test_the_slow_tests_on_an_emulated_gpu(name, environment):
    run(environment, "-m", "slow", str(emulation.HERE / name))
