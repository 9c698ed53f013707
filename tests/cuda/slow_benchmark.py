"""The benchmark ``gpu`` on the emulated runtime: its numbers mean nothing, but every part runs."""

from __future__ import annotations

import json
from argparse import Namespace
from shutil import which

import pytest

from benchmarks import gpu

FAIL_HERE = {"tests": "failed", "workers under MPS": "nvidia-cuda-mps-control is not installed"}
"""A test compares numbers."""


@pytest.mark.slow
@pytest.mark.skipif(which(gpu.MPS) is not None, reason="MPS would be started")
def test_every_part_of_the_benchmark_runs(tmp_path):
    out = tmp_path / "gpu.json"
    options = Namespace(data="digits", rounds=1, genome=["xsqa"], part=None, out=out)
    figures = gpu.gpu(options)
    assert len({figure.name for figure in figures}) == len(figures)
    parts = json.loads(out.read_text())["parts"]
    assert list(parts) == list(gpu.PARTS)
    for name, part in parts.items():
        assert FAIL_HERE.get(name, "None") in str(part.get("error")), part
    assert parts["steps"]["machine"]["gpu"] == "emulated GPU"
