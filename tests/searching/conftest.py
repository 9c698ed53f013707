"""A small search space, and searches in it without training."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nas.common.objectives import Objective, SearchConfig
from nas.costs import CostContext
from nas.evaluation.trial import Budget, Evaluation, Trial
from nas.searching.listener import Listener
from nas.searching.loop import Loop
from nas.searching.setup import make_proposer
from nas.space import SearchSpace
from nas.store import Document, RunSetup, RunWriter, Session, create_run, open_run, open_writer
from nas.store.frozen import frozen_space
from nas.tasks import Data, Task, load_task
from tests.searching.driving import OBJECTIVES, SIZES, SPACE

SESSION = Session("nas search", {"nas": "0.1"}, "a CPU")

# One chain, four projections on or off: 30 mechanisms and no more.
TINY = SearchSpace.model_validate(
    {
        "name": "tiny",
        "nodes": {"max": 3},
        "primitives": {"scaled_dot_product": {}, "softmax": {}, "weighted_sum": {}},
        "projections": {f"has_w{x}": [True, False] for x in "qkvo"},
        "mechanisms": ["mha"],
        "objectives": ["accuracy", "macs"],
    }
)


def hashed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")


class Table:
    """An evaluator that computes results from a hash of the key, without training.

    One key in ten fails. Each worker runs a trial; the trial that ends next is drawn with the seed
    ``order``.
    """

    def __init__(self, workers: int = 1, stop_after: int | None = None, order: int = 0) -> None:
        self.workers = workers
        self.trained: list[tuple[str, int]] = []
        self.most_waiting = 0
        self.closed = False
        self.calibrated = 0
        self.lost: set[str] = set()
        self.lost_repeats: set[int] = set()  # by their seeds
        self.broken = False  # the machine
        self._left = stop_after
        self._waiting: list[Trial] = []
        self._rng = np.random.default_rng(order)

    def calibrate(self) -> Mapping[str, Any]:
        self.calibrated += 1
        return {}

    def submit(self, trials: Sequence[Trial]) -> None:
        self._waiting += trials
        self.most_waiting = max(self.most_waiting, len(self._waiting))

    def wait(self) -> list[tuple[Trial, Evaluation]]:
        if not self._waiting:
            return []
        if self._left is not None:
            if self._left == 0:
                raise KeyboardInterrupt
            self._left -= 1
        trial = self._waiting.pop(self._rng.integers(min(self.workers, len(self._waiting))))
        self.trained.append((trial.key, trial.seed))
        return [(trial, self.evaluate(trial))]

    def close(self) -> None:
        self.closed = True

    def evaluate(self, trial: Trial) -> Evaluation:
        number = hashed(trial.key)
        accuracy = 0.1 + 0.8 * (number % 997) / 997 + trial.seed % 1000 / 1e5
        if trial.learning_rate == 0.01:
            accuracy -= 0.05
        fields = ((), trial.seed, Budget(1, 2, "float32"), 0.0, 0.0, 0, "here")
        if trial.key in self.lost or trial.seed in self.lost_repeats:
            return Evaluation("failed", "worker_lost", {}, *fields, error="it went away")
        if self.broken:
            return Evaluation("failed", "error", {}, *fields, error="the disk is full")
        if number % 10 == 0:
            return Evaluation("failed", "diverged", {}, *fields, error="the loss is no number")
        weights = trial.key.encode() if trial.keeps_weights else None
        metrics = {"accuracy": accuracy, "log_loss": 2.3 * (1 - accuracy)}
        return Evaluation("ok", None, metrics, *fields, weights=weights)


def look_up(
    trial: Trial, task: Task, data: Data, *, device: str, time_limit: float | None
) -> Evaluation:
    """A training function that returns the results of ``Table``."""
    return Table().evaluate(trial)


class Heard(Listener):
    """A listener that stores all events."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.on_start = self.on_evaluation = self.events.append  # type: ignore[method-assign]
        self.on_generation = self.on_end = self.events.append  # type: ignore[method-assign]

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def small_task() -> Task:
    """A task on digits that trains in a tenth of a second, with the sizes ``SIZES``."""
    sizes = {"image_size": 8, "patch": 2, "width": 32, "depth": 2, "heads": 4}
    budget = {"train_images": 128, "validation_images": 100, "epochs": 1}
    return load_task("vit-cifar10", data="digits", overrides={**sizes, **budget})


@dataclass
class Kit:
    """Makes parts of a search with default values."""

    root: Path
    sizes = SIZES

    def create(
        self,
        name: str = "run",
        space: SearchSpace = SPACE,
        objectives: tuple[Objective, ...] = OBJECTIVES[:2],
        **settings: Any,
    ) -> RunWriter:
        chosen = SearchConfig(
            **{"algorithm": "nsga2", "population": 8, "generations": 4, **settings}
        )
        space_copy, policy_copy = frozen_space(space)
        setup = RunSetup(
            space=space_copy,
            policy=policy_copy,
            task=Document("toy", "name: toy\n", "0123456789abcdef"),
            objectives=objectives,
            config=chosen,
        )
        return create_run(self.root, setup, SESSION, name=name)

    def open(self, name: str = "run") -> RunWriter:
        return open_writer(self.root / name, SESSION)

    def search(
        self, writer: RunWriter, table: Table | None = None, listener: Listener | None = None
    ) -> bool:
        """Search until the run ends, close it, and return whether its space is exhausted."""
        with writer:
            setting = CostContext(self.sizes, False, False, {})
            proposer = make_proposer(writer.run.setup, setting)
            return Loop(writer, proposer, table or Table(), listener or Listener()).run()

    def recorded(self, name: str = "run") -> dict[str, Any]:
        """Everything in a run that must not depend on workers and interruptions."""
        with open_run(self.root / name) as run:
            steps = [(g.number, g.hypervolume, g.best, g.front) for g in run.generations()]
            weights = (self.root / name / "weights").glob("*")
            return {
                "proposals": run.proposals(),
                "evaluations": {
                    (t.purpose, t.key, t.repeat): (e.status, e.metrics, e.seed)
                    for t in run.trainings()
                    for e in [t.evaluation]
                },
                "generations": steps,
                "counts": run.counts(),
                "front": [(m.digest, m.objectives, m.errors, m.scores, m.p) for m in run.front()],
                "weights": {path.name: path.read_bytes() for path in weights},
            }


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path / "runs")


@pytest.fixture
def task() -> Task:
    return small_task()
