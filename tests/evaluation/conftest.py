"""A task that is trained in a blink, its data, and trials of standard attention."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nas.evaluation.trial import Trial
from nas.mechanisms import mechanism
from nas.tasks import Data, Task, load_task

MakeTrials = Callable[..., list[Trial]]


@pytest.fixture(scope="package")
def task() -> Task:
    sizes = {"epochs": 1, "train_images": 64, "validation_images": 32, "width": 32}
    return load_task("vit-cifar10", data="digits", overrides=sizes)


@pytest.fixture(scope="package")
def data(task: Task) -> Data:
    return task.load()


@pytest.fixture(scope="session")
def trials_named() -> MakeTrials:
    """Trials with these keys, the n-th with seed n."""

    def make(*keys: str) -> list[Trial]:
        genome = mechanism("mha").genome
        return [Trial(key, genome, seed) for seed, key in enumerate(keys)]

    return make
