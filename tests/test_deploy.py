"""The files in deploy/: scripts that continue an interrupted search, and an image to run them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nas.store import open_run

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
SPACE = """
name: tiny
nodes: {max: 5}
primitives: {scaled_dot_product: {}, softmax: {}, weighted_sum: {}, gelu: {}}
projections: {has_wq: [true, false], has_wk: [true, false], has_wv: [true, false]}
mechanisms: [mha]
objectives: [quality, macs]
task: {name: vit-cifar10, image_size: 8, patch: 2, width: 16, depth: 1, heads: 2, epochs: 1,
       train_images: 200, validation_images: 100, batch_size: 32}
"""


def program(folder: Path, name: str, text: str) -> None:
    """Put a command on PATH."""
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def environment(folder: Path, **others: str) -> dict[str, str]:
    return {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", **others}


def wait_for(happened: Any) -> None:
    deadline = time.monotonic() + 180
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_go_on_resumes_a_search_after_sigterm(tmp_path: Path) -> None:
    run_nas = f"import sys; sys.path.insert(0, {str(ROOT)!r})\nfrom nas.cli import main\nmain()\n"
    program(tmp_path, "nas", f"#!{sys.executable}\n{run_nas}")
    (tmp_path / "space.yaml").write_text(SPACE)
    options = "mine --backend local -- --space space.yaml --data digits --gens 8 --pop 4"
    command = [str(DEPLOY / "go-on"), *options.split()]
    where = {"cwd": tmp_path, "env": environment(tmp_path, RUNS="here", OMP_NUM_THREADS="1")}
    folder = tmp_path / "here" / "mine"

    def has_trained() -> bool:
        if not (folder / "run.sqlite").exists():
            return False
        with open_run(folder) as run:
            return bool(run.trainings())

    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **where)
    wait_for(has_trained)
    started.send_signal(signal.SIGTERM)
    _, err = started.communicate(timeout=60)
    assert started.returncode == 130
    assert b"`nas resume here/mine` goes on" in err
    with open_run(folder) as run:
        assert run.status == "stopped"
        num_trained = len(run.trainings())
    done = subprocess.run(command, capture_output=True, text=True, check=True, **where)
    assert f"{num_trained} recorded already" in done.stdout
    with open_run(folder) as run:
        assert [past.ended is not None for past in run.sessions()] == [True, True]
        assert run.status == "finished"


@pytest.fixture
def batch(tmp_path: Path) -> dict[str, Any]:
    """A folder to submit a job from, with commands that record how they are called."""
    (tmp_path / "deploy").symlink_to(DEPLOY)
    note = f'#!/bin/bash\necho "$(basename "$0") $*" >> {tmp_path}/calls\n'
    for name in ("srun", "scontrol", "ray"):
        program(tmp_path, name, note)
    # Ends some time after SIGTERM, as nas does.
    waits = 'trap "sleep 0.3; echo nas ended >> calls; exit 130" TERM\nfor _ in $(seq 600); do\n'
    program(tmp_path, "nas", f'{note}[ -z "$STATUS" ] || exit $STATUS\n{waits}sleep 0.1\ndone\n')
    job = {"JOB_ID": "77", "JOB_NUM_NODES": "3", "CPUS_PER_TASK": "16", "SUBMIT_DIR": str(tmp_path)}
    slurm = {f"SLURM_{name}": value for name, value in job.items()}
    return {"cwd": tmp_path, "env": environment(tmp_path, **slurm, RUN="mine", STATUS="")}


def calls(batch: dict[str, Any]) -> list[str]:
    path = batch["cwd"] / "calls"
    return path.read_text().splitlines() if path.exists() else []


def test_slurm_requeues_a_job_after_sigterm(batch: dict[str, Any]) -> None:
    job = subprocess.Popen(["bash", DEPLOY / "search.slurm", "--space", "x"], **batch)
    wait_for(lambda: any(line.startswith("nas") for line in calls(batch)))
    time.sleep(0.3)  # the trap comes after the command
    job.send_signal(signal.SIGTERM)
    assert job.wait(timeout=60) == 143
    *_, ended, requeued = calls(batch)
    assert (ended, requeued) == ("nas ended", "scontrol requeue 77")


def test_slurm_starts_head_and_workers_then_nas(batch: dict[str, Any]) -> None:
    batch["env"]["STATUS"] = "3"
    job = subprocess.run(["bash", DEPLOY / "search.slurm", "--space", "x"], **batch, check=False)
    assert job.returncode == 3  # the status of nas; nothing is queued again
    head = subprocess.run(["hostname"], capture_output=True, text=True, check=True).stdout.strip()
    wait_for(lambda: len(calls(batch)) >= 4)
    called = "\n".join(sorted(calls(batch)))
    assert f"nas search --run mine --runs runs --ray-address {head}:20077 --space x" in called
    assert re.search(rf"--nodes=1 .*--nodelist={head} ray start --head --port=20077 ", called)
    assert re.search(rf"--nodes=2 .*--exclude={head} ray start --address={head}:20077 ", called)
    assert "scontrol" not in called
    (batch["cwd"] / "runs" / "mine").mkdir(parents=True)
    (batch["cwd"] / "runs" / "mine" / "run.sqlite").touch()
    subprocess.run(["bash", DEPLOY / "search.slurm", "--space", "x"], **batch, check=False)
    assert f"nas resume mine --runs runs --ray-address {head}:20077" in calls(batch)
