"""Resume a run in one process after another, each killed at a random moment, then to its end.

    python killed.py RUN_FOLDER table|real LOG NUM_KILLS

A moment is a number of trainings begun and some milliseconds more. Prints the signal that ended
each process. Run by test_killed.py; not a test itself.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from conftest import look_up, small_task

from nas.evaluation.trainer import LocalEvaluator, train_candidate
from nas.evaluation.trial import Evaluation, Trial
from nas.searching.driver import resume_search


def train(trial: Trial, *others: Any, log: Path, mode: str, **named: Any) -> Evaluation:
    """Write a line to the log, then train."""
    with log.open("a") as file:
        file.write(f"{trial.key}:{trial.seed}\n")
    if mode == "real":
        return train_candidate(trial, *others, **named)
    time.sleep(0.002)
    return look_up(trial, *others, **named)


def forked(folder: Path, mode: str, log: Path) -> int:
    child = os.fork()
    if child:
        return child
    try:
        make = partial(LocalEvaluator, train=partial(train, log=log, mode=mode))
        resume_search(folder, make_evaluator=make)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


def wait(child: int, log: Path, moments: random.Random) -> None:
    """Wait until the child process has begun a few trainings, or none."""
    wanted = num_begun(log) + moments.randrange(8)
    ended = os.WEXITED | os.WNOHANG | os.WNOWAIT
    while num_begun(log) < wanted and not os.waitid(os.P_PID, child, ended):
        time.sleep(0.001)
    time.sleep(moments.uniform(0.0, 0.02))


def num_begun(log: Path) -> int:
    return log.read_text().count("\n") if log.exists() else 0


def main() -> None:
    folder, mode, log, num_kills = sys.argv[1:]
    small_task().load()  # slow imports once, before the forks
    moments = random.Random(0)
    for _ in range(int(num_kills)):
        child = forked(Path(folder), mode, Path(log))
        wait(child, Path(log), moments)
        os.kill(child, signal.SIGKILL)
        print(os.WTERMSIG(os.waitpid(child, 0)[1]), flush=True)
    _, status = os.waitpid(forked(Path(folder), mode, Path(log)), 0)
    sys.exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
