"""A run whose process is killed repeatedly gives the results of an undisturbed one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.chaos import ROOT
from benchmarks.life import MUST_BE_ZERO


@pytest.mark.slow
def test_kills_lose_and_change_nothing(tmp_path: Path) -> None:
    tables = tmp_path / "tables.json"
    command = [sys.executable, "-m", "benchmarks", "kills", "--kills", "5"]
    subprocess.run([*command, "--json", str(tables)], cwd=ROOT, check=True)
    counts = {row[""]: row["number"] for row in json.loads(tables.read_text())["tables"]["kills"]}
    assert counts["kills"] == 5
    assert {name: counts[name] for name in MUST_BE_ZERO} == dict.fromkeys(MUST_BE_ZERO, 0)
