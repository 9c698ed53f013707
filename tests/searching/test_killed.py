"""Processes killed with signal 9 at random moments lose no result and change none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nas.common.objectives import SearchConfig
from nas.evaluation.trainer import LocalEvaluator
from nas.searching.driver import run_search
from nas.store import open_run

from .conftest import look_up
from .driving import SPACE

KILLED = Path(__file__).with_name("killed.py")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "settings", "num_kills"),
    [
        ("table", SearchConfig(population=8, generations=3, seed=1, lag=3), 2),
        ("real", SearchConfig(population=8, generations=5, seed=2), 4),
    ],
)
def test_killed_and_resumed_run_equals_an_uninterrupted_run(
    kit: Any, task: Any, mode: str, settings: SearchConfig, num_kills: int
) -> None:
    options = {} if mode == "real" else {"train": look_up}
    start = partial(run_search, SPACE, task, settings, root=kit.root)
    start(make_evaluator=partial(LocalEvaluator, **options), name="whole")
    folder = start(
        make_evaluator=partial(Stopped, settings.population, **options), name="run"
    ).folder
    log = kit.root / "trained.log"
    printed = _run(folder, mode, log, num_kills)
    assert printed == [int(signal.SIGKILL)] * num_kills
    assert kit.recorded() == kit.recorded("whole")
    per_generation = settings.population * settings.repeats
    with open_run(folder) as run:
        assert run.status == "finished"
        assert len(run.trainings()) == per_generation * settings.generations
    # Trained again is only what was under way, or not yet recorded, when the signal came.
    trained = Counter(log.read_text().split())
    assert len(trained) == per_generation * (settings.generations - 1)
    assert sum(trained.values()) <= len(trained) + num_kills


class Stopped(LocalEvaluator):
    """An evaluator that is interrupted after some trainings."""

    def __init__(self, left: int, *others: Any, **options: Any) -> None:
        super().__init__(*others, **options)
        self._left = left

    def wait(self) -> Any:
        if not self._left:
            raise KeyboardInterrupt
        self._left -= 1
        return super().wait()


def _run(folder: Path, mode: str, log: Path, num_kills: int) -> list[int]:
    command = [sys.executable, str(KILLED), str(folder), mode, str(log), str(num_kills)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]
