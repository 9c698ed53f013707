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


@pytest.mark.parametrize("path", sorted(emulation.HERE.glob("emulated_*.py")), ids=lambda p: p.stem)
def test_on_an_emulated_gpu(path, environment):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-2000:]
