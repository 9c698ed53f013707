"""Send the numbers of a search to Weights & Biases, MLflow or TensorBoard.

A tracker runs in a process of its own, since a call to an unreachable server may block for minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeAlias

from nas.common.errors import ConfigError, NasWarning
from nas.common.text import last_line
from nas.searching.listener import GenerationDone, Listener, SearchResult, Started

TIME_LIMIT: Final = 30.0  # seconds that a tracker has after the end of a search

# A function of the numbers by name and ``step=``, and a function that ends the tracker's run.
Opened: TypeAlias = tuple[Callable[..., object], Callable[[], object]]


class Tracker(Listener):
    """Sends hypervolume, size of the front and best estimate of each generation.

    The step of the numbers is the number of proposals so far. A tracker that fails, or has not sent
    all numbers ``TIME_LIMIT`` after the search, is ended, and a NasWarning says why.

    ``name`` is "wandb" or "mlflow", which their environment variables configure, or "tensorboard",
    which writes event files into the folder ``tensorboard`` of the run. ConfigError is raised if
    there is no such tracker, or if its package is not installed.
    """

    def __init__(self, name: str) -> None:
        if name not in TRACKERS:
            raise ConfigError(f"there is no tracker {name!r}; expected {', '.join(TRACKERS)}.")
        if find_spec(name) is None:
            raise ConfigError(f"the package {name} is not installed; run `pip install {name}`.")
        self._name = name
        self._process: subprocess.Popen[bytes] | None = None

    def on_start(self, event: Started) -> None:
        """Start the tracker's process, whose output the file tracker.log of the run receives."""
        self._setup, self._log = event.setup, event.folder / "tracker.log"
        command = [sys.executable, "-P", "-m", __name__, self._name, event.run, str(event.folder)]
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,  # an interrupt of the search must not end it
            )
        assert self._process.stdin is not None
        self._pipe = self._process.stdin
        os.set_blocking(self._pipe.fileno(), False)

    def on_generation(self, event: GenerationDone) -> None:
        """Send the numbers, unless a resumed search repeats a recorded generation."""
        if event.is_replayed or self._process is None:
            return
        generation = event.generation
        values = {
            "search/hypervolume": generation.hypervolume,
            "search/front_size": len(generation.front),
            f"search/best_{self._setup.objectives[0].name}": generation.best,
        }
        known = {name: value for name, value in values.items() if value is not None}
        step = (generation.number + 1) * self._setup.config.population
        try:
            os.write(self._pipe.fileno(), f"{json.dumps([step, known])}\n".encode())
        except OSError:  # the process has ended, or has not read for hundreds of generations
            self._stop(1.0)

    def on_end(self, _: SearchResult) -> None:
        """Wait until the tracker has sent all numbers, ``TIME_LIMIT`` at most."""
        self._stop(TIME_LIMIT)

    def _stop(self, seconds: float) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        self._pipe.close()
        try:
            is_ok = process.wait(seconds) == 0
            reason = last_line(self._log.read_text(errors="replace"))
        except subprocess.TimeoutExpired:
            is_ok, reason = False, f"no answer in {TIME_LIMIT:g} seconds"
            process.kill()
            process.wait()
        if not is_ok:
            warnings.warn(
                f"{self._name} did not accept the numbers of the search, which is not affected: "
                f"{reason} ({self._log})",
                NasWarning,
                stacklevel=2,
            )


def _open_wandb(run: str, _: Path) -> Opened:
    library: Any = import_module("wandb")
    opened = library.init(name=run)
    return opened.log, opened.finish


def _open_mlflow(run: str, _: Path) -> Opened:
    library: Any = import_module("mlflow")
    library.start_run(run_name=run)
    return library.log_metrics, library.end_run


def _open_tensorboard(_: str, folder: Path) -> Opened:
    library: Any = import_module("tensorboard.summary")
    writer = library.Writer(str(folder / "tensorboard"))

    def log(values: dict[str, float], *, step: int) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    return log, writer.close


TRACKERS: Final = {"wandb": _open_wandb, "mlflow": _open_mlflow, "tensorboard": _open_tensorboard}


if __name__ == "__main__":
    _, name, run, folder = sys.argv
    log, finish = TRACKERS[name](run, Path(folder))
    for line in sys.stdin:
        step, values = json.loads(line)
        log(values, step=step)
    finish()
