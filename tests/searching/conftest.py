"""A small real space, and runs of it with a table in place of training."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nas.canonical import resolved_digest
from nas.evaluation.choices import Choices
from nas.evaluation.record import Evaluation, Job
from nas.genome import Genome
from nas.mechanisms import seeds
from nas.search.algorithm import Materials
from nas.search.front_file import front_answer
from nas.search.listener import Listener, Silent
from nas.search.loop import Loop
from nas.search.novelty import Novelty
from nas.search.setup import Settings, frozen_algorithm, make_setup
from nas.space import SearchSpace
from nas.store import Document, RunWriter, Session, create_run, open_run, open_writer
from nas.tasks import ImageData, Task, load_task
from nas.validation import Policy, load_policy
from nas.variation import Variation

SIZES = {"dim": 32, "heads": 4, "depth": 2}
SESSION = Session("nas search", {"nas": "0.1"}, "a CPU")
MHA = {"macs": 1000.0}

SPACE = SearchSpace.model_validate(
    {
        "name": "small",
        "nodes": {"max": 7},
        "primitives": {
            "scaled_dot_product": {},
            "bilinear": {},
            "softmax": {},
            "sigmoid": {},
            "weighted_sum": {},
            "gelu": {},
            "layer_norm": {},
        },
        "projections": {
            "has_wq": [True, False],
            "has_wk": [True, False],
            "q_heads": ["all", "1/2"],
            "kv_heads": ["all", "1/2"],
        },
        "mechanisms": ["mha", "ssqa"],
    }
)
# One chain, four projections on or off: 50 mechanisms and no more.
TINY = SearchSpace.model_validate(
    {
        "name": "tiny",
        "nodes": {"max": 3},
        "primitives": {"scaled_dot_product": {}, "softmax": {}, "weighted_sum": {}},
        "projections": {f"has_w{x}": [True, False] for x in "qkvo"},
        "mechanisms": ["mha"],
    }
)


class Table:
    """An evaluator that looks results up in a hash of the key: quick, and the same everywhere.

    One key in ten fails. Results come in an order that depends on the number of workers.
    """

    def __init__(self, workers: int = 1, stop_after: int | None = None) -> None:
        self.workers = workers
        self.trained: list[tuple[str, int]] = []
        self.closed = False
        self.choices: Choices | None = None
        self._left = stop_after

    def choose(self, seeds: int = 1) -> Choices:
        return Choices("float32", {"a place": {16: "a way"}}, "a table")

    def use(self, choices: Choices) -> None:
        self.choices = choices

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Evaluation]]:
        for job in sorted(jobs, key=lambda job: (job.seed % self.workers, job.seed)):
            if self._left is not None:
                if self._left == 0:
                    raise KeyboardInterrupt
                self._left -= 1
            self.trained.append((job.key, job.seed))
            yield job, self.evaluate(job)

    def close(self) -> None:
        self.closed = True

    def evaluate(self, job: Job) -> Evaluation:
        number = int.from_bytes(hashlib.sha256(job.key.encode()).digest()[:6], "big")
        noise = job.seed % 1000 / 1e5
        objectives = {
            "accuracy": 0.1 + 0.8 * (number % 997) / 997 + noise,
            "macs": float(1 + number % 1999),
        }
        fields = (job.seed, "a table", 0.0, 0.0, 0, "here")
        if number % 10 == 0:
            return Evaluation("failed", "diverged", {}, (), *fields, "the loss is not a number")
        return Evaluation("ok", None, objectives, (), *fields, None)


def look_up(
    job: Job, task: Task, data: ImageData, *, device: str, time_limit: float | None
) -> Evaluation:
    """The table as a training function."""
    return Table().evaluate(job)


class Heard(Silent):
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.on_start = self.on_generation_start = self.events.append  # type: ignore[method-assign]
        self.on_evaluation = self.on_generation = self.events.append  # type: ignore[method-assign]
        self.on_end = self.events.append  # type: ignore[method-assign]

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def small_task() -> Task:
    """Digits, trained in a tenth of a second; sizes as in ``SIZES``."""
    sizes = {"image_size": 8, "patch": 2, "width": 32, "depth": 2, "heads": 4}
    budget = {"train_images": 128, "validation_images": 100, "epochs": 1}
    return load_task("vit-cifar10", data="digits", overrides={**sizes, **budget})


@dataclass
class Kit:
    """Makes what a search needs; everything not said has a default."""

    root: Path
    policy: Policy
    key: Callable[[Genome], str]
    space = SPACE
    tiny = TINY
    sizes = SIZES
    session = SESSION
    mha = MHA
    look_up = staticmethod(look_up)

    def novelty(self, key: Callable[[Genome], str] | None = None) -> Novelty:
        return Novelty(self.policy, key or self.key)

    def materials(
        self, seed: int = 0, population: int = 10, space: SearchSpace = SPACE, width: int = 2
    ) -> Materials:
        return Materials(
            operators=Variation(space, self.policy),
            novelty=self.novelty(),
            mechanisms=seeds(space, self.policy),
            population=population,
            num_objectives=width,
            seed=seed,
        )

    def create(self, name: str = "run", space: SearchSpace = SPACE, **settings: Any) -> RunWriter:
        chosen = Settings(**{"population": 8, "generations": 4, **settings})
        task = Document("toy", "name: toy\n", "0123456789abcdef")
        setup = make_setup(space, task, chosen, num_classes=10, mha=MHA)
        return create_run(self.root, setup, SESSION, name=name)

    def open(self, name: str = "run") -> RunWriter:
        return open_writer(self.root / name, SESSION)

    def search(
        self, writer: RunWriter, table: Table | None = None, listener: Listener | None = None
    ) -> bool:
        """Work on a run to its end and close it; gives whether its space is exhausted."""
        with writer:
            algorithm = frozen_algorithm(writer.run.setup, **SIZES)
            return Loop(writer, algorithm, table or Table(), listener or Silent()).run()

    def recorded(self, name: str = "run") -> dict[str, Any]:
        """All of a run that must not depend on workers and interruptions."""
        with open_run(self.root / name) as run:
            answer = front_answer(run)
            steps = [
                (g.number, g.hypervolume, g.best_accuracy, g.counts, g.front)
                for g in run.generations()
            ]
            return {
                "proposals": run.proposals(),
                "evaluations": {
                    name: (e.status, e.objectives.get("accuracy"), e.curve, e.seed)
                    for name, e in run.evaluations().items()
                },
                "generations": steps,
                "front": {name: answer[name] for name in answer if name != "run"},
            }


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(
        root=tmp_path / "runs",
        policy=load_policy("score_normalize_aggregate"),
        key=functools.partial(resolved_digest, **SIZES),
    )


@pytest.fixture
def task() -> Task:
    return small_task()


@pytest.fixture
def make_table() -> Callable[..., Table]:
    return Table


@pytest.fixture
def heard() -> Heard:
    return Heard()
