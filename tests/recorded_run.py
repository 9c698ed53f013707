"""Recorded runs for tests: a small one whose trainings are invented, and a real one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from nas.common.objectives import Objective, SearchConfig
from nas.costs import CostContext, costs_of
from nas.evaluation.trial import Budget, Evaluation, Report, Trial
from nas.genome import ModelSizes
from nas.searching.listener import Listener, Started
from nas.searching.loop import Loop
from nas.searching.setup import make_proposer
from nas.space import load_space
from nas.store import Document, RunSetup, Session, create_run, open_writer, this_session
from nas.store.frozen import frozen_space

SETTING = CostContext(ModelSizes(32, 4, 2, 65), qkv_bias=False, is_causal=False, calibration={})
MECHANISMS = (
    *("mha", "gqa", "mqa", "sqa", "ssqa", "xsqa", "qana", "neural_attention", "additive"),
    *("uniform", "champion_2025"),
)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ACCURACY = Objective("accuracy", "max", "fraction", "share got right", 1.0, 0.1, is_metric=True)
MACS = Objective("macs", "min", "MAC", "multiply-adds", 0.0, 4_000_000.0, is_metric=False)
POPULATION = 12
# A search on CIFAR-10 whose front was confirmed, also under a longer task.
CONFIRMED = Path(__file__).parent / "data" / "confirmed"


@pytest.fixture(scope="session")
def recorded_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run, ``runs/example``; do not write to it."""
    return record_run(tmp_path_factory.mktemp("recorded") / "runs")


def record_run(
    root: Path,
    *,
    name: str = "example",
    repeats: int = 1,
    generations: int = 3,
    objectives: tuple[Objective, ...] = (ACCURACY, MACS),
    is_finished: bool = True,
    listener: Listener | None = None,
    minutes: Iterator[int] | None = None,
) -> Path:
    """Record a run of real genomes, whose first candidate after the mechanisms has failed.

    Args:
        minutes: minutes after noon that the clock of the run returns.
    """
    listener = listener or Listener()
    attention = load_space("attention_v2").model_copy(update={"mechanisms": MECHANISMS})
    space, policy = frozen_space(attention)
    setup = RunSetup(
        space=space,
        policy=policy,
        task=Document("vit-cifar10", "kind: images\nname: vit-cifar10\n", "0011223344556677"),
        config=SearchConfig("nsga2", POPULATION, generations, seed=7, repeats=repeats),
        objectives=objectives,
    )
    versions = {"nas": "0.1.0", "torch": "2.9"}
    minutes = minutes or count()
    clock = lambda: NOON + timedelta(minutes=next(minutes))  # noqa: E731
    command = "nas search --space attention_v2"
    session = Session(command, versions, "a CPU", 2, started=clock())
    with create_run(root, setup, session, name=name, clock=clock) as writer:
        invented = Invented(fails=min(len(attention.mechanisms), POPULATION - 1))
        listener.on_start(Started(name, writer.run.folder, setup, invented.workers, 0))
        Loop(writer, make_proposer(setup, SETTING), invented, listener).run()
        if is_finished:
            writer.finish()
    return root / name


def go_on(folder: Path, generations: int = 1, listener: Listener | None = None) -> None:
    """Resume a recorded run until its end, or with more generations."""
    listener = listener or Listener()
    with open_writer(folder, this_session("nas resume")) as writer:
        writer.raise_generations(generations)
        setup = writer.run.setup
        listener.on_start(Started(writer.run.name, folder, setup, Invented.workers, 0))
        Loop(writer, make_proposer(setup, SETTING), Invented(), listener).run()
        writer.finish()


class Invented:
    """An evaluator that returns at once; accuracy rises with multiply-adds, plus noise.

    Args:
        fails: index of the candidate that fails.
    """

    workers = 2

    def __init__(self, fails: int | None = None) -> None:
        self._fails = fails
        self._keys: dict[str, int] = {}
        self._waiting: list[Trial] = []

    def calibrate(self) -> dict[str, float]:
        return {}

    def submit(self, trials: Sequence[Trial]) -> None:
        self._waiting += trials

    def wait(self) -> list[tuple[Trial, Evaluation]]:
        done, self._waiting = self._waiting[:1], self._waiting[1:]
        return [(trial, self.evaluate(trial)) for trial in done]

    def close(self) -> None:
        pass

    def evaluate(self, trial: Trial) -> Evaluation:
        fails = self._keys.setdefault(trial.key, len(self._keys)) == self._fails
        macs = costs_of(SETTING.resolve(trial.mechanism), SETTING, ["macs"])["macs"]
        accuracy = 0.1 + 0.4 * macs / (macs + 4e5) + (trial.seed % 1000 - 500) / 5e3
        return Evaluation(
            status="failed" if fails else "ok",
            reason="diverged" if fails else None,
            metrics={} if fails else {"accuracy": accuracy},
            reports=(
                Report(1, 2.2, {"accuracy": accuracy / 2}, 1.5),
                Report(2, 1.9, {"accuracy": accuracy}, 3.0),
            ),
            seed=trial.seed,
            budget=Budget(2, 1024, "float32"),
            wall_seconds=3.5,
            core_seconds=3.0,
            peak_memory_bytes=2**28,
            worker="host:1",
            hardware="a CPU",
            execution="cpu, eager",
            error="the loss is not a number" if fails else None,
        )
