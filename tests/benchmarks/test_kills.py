"""A run whose process is killed through its whole life comes to what a calm one comes to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.chaos import ROOT
from benchmarks.life import MAY_NOT_BE


@pytest.mark.slow
def test_a_life_with_five_kills_loses_nothing(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    command = [sys.executable, "-m", "benchmarks", "kills", "--kills", "5"]
    subprocess.run([*command, "--history", str(history)], cwd=ROOT, check=True)
    figures = json.loads(history.read_text())["figures"]
    found = {name: value for name, (value, *_) in figures.items()}
    assert found["kills"] == 5
    assert {name: found[name] for name in MAY_NOT_BE} == dict.fromkeys(MAY_NOT_BE, 0)
