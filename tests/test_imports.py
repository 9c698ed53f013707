"""Reading a run and training locally need few packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import TINY

UNNEEDED = ("ray", "torchvision", "onnx", "transformers")
WITHOUT = f"""
import sys

for name in {UNNEEDED}:
    sys.modules[name] = None  # an import fails, as if the package were not installed
from nas.cli import main

for line in sys.argv[1:]:
    try:
        main(line.split())
    except SystemExit as ended:
        assert not ended.code, line
"""
ROOT = Path(__file__).resolve().parent.parent


def test_a_slim_installation_reads_runs_and_trains_locally(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    run = ROOT / "runs" / "example"
    commands = (
        f"front {run} --json",
        f"show {run}/best --plot graph.svg",
        f"report {run} -o run.html",
        f"export {run}/best -o best.py",
        "evaluate mha --tasks tiny.yaml --seeds 1 --backend local",
    )
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *commands], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
