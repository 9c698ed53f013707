"""Factories of records and of small runs for the tests of the store."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from nas.common.objectives import Objective, SearchConfig
from nas.evaluation.trial import Evaluation, Purpose, Training
from nas.genome.mechanisms import mechanism
from nas.store import Document, Proposal, RunSetup, RunWriter, Session, create_run
from tests.evaluation.conftest import make_evaluation
from tests.recorded_run import ACCURACY, NOON

MACS = Objective("macs", "min", "MAC", "multiply-adds", 0.0, 2000.0, is_metric=False)
GENOME = mechanism("mha").genome


class Samples:
    """Makes records with default values."""

    accuracy, macs = ACCURACY, MACS
    now = NOON

    @property
    def session(self) -> Session:
        versions = {"nas": "0.1", "torch": "2.9"}
        return Session("nas search --space quickstart", versions, "a CPU", 2)

    def setup(self, **changes: Any) -> RunSetup:
        setup = RunSetup(
            space=Document.of("quickstart", "name: quickstart\n"),
            policy=Document.of("score_normalize_aggregate", "rules: []\n"),
            task=Document("vit-cifar10", "epochs: 3\n", "0011223344556677"),
            config=SearchConfig("nsga2", population=4, generations=2, seed=3),
            objectives=(ACCURACY, MACS),
            calibration={"softmax": [0.25, 1]},
        )
        names = changes.keys() & {field.name for field in dataclasses.fields(SearchConfig)}
        config = dataclasses.replace(setup.config, **{name: changes.pop(name) for name in names})
        return dataclasses.replace(setup, config=config, **changes)

    def digest(self, name: object) -> str:
        return hashlib.sha256(str(name).encode()).hexdigest()[:16]

    def proposal(self, number: int, attempt: int = 0, **changes: Any) -> Proposal:
        digest = changes.pop("digest", self.digest(f"{number}.{attempt}"))
        proposal = Proposal(
            number=number,
            attempt=attempt,
            digest=digest,
            key=digest[::-1],
            genome=GENOME,
            formula="softmax(q·k/√d) v",
            operator="sample",
            name=None,
            parents=(),
            verdict="new",
            costs={"macs": 1000.0, "params": 16.0},
        )
        return dataclasses.replace(proposal, **changes)

    def evaluation(self, accuracy: float = 0.5, **changes: Any) -> Evaluation:
        return make_evaluation(**{"metrics": {"accuracy": accuracy}, **changes})

    def failure(self, reason: str = "diverged", **changes: Any) -> Evaluation:
        fields: dict[str, Any] = {"status": "failed", "reason": reason, "metrics": {}}
        return self.evaluation(**{**fields, "error": "the loss is not a number", **changes})

    def record(
        self,
        writer: RunWriter,
        key: str,
        repeat: int,
        evaluation: Evaluation,
        purpose: Purpose = "search",
    ) -> None:
        """Record a training of the search."""
        task = writer.run.setup.task
        place = purpose, task.fingerprint, task.name, key, "", repeat
        writer.record_training(Training(*place, evaluation), None)

    def fill(self, writer: RunWriter, values: Sequence[tuple[float, float]]) -> list[Proposal]:
        """Propose and evaluate one candidate for each pair of accuracy and MACs."""
        proposals = [self.proposal(i, costs={"macs": values[i][1]}) for i in range(len(values))]
        writer.record_proposals(proposals)
        for proposal, (accuracy, _) in zip(proposals, values, strict=True):
            assert proposal.key is not None
            self.record(writer, proposal.key, 0, self.evaluation(accuracy))
        return proposals


@pytest.fixture(scope="session")
def samples() -> Samples:
    return Samples()


@pytest.fixture
def new_run(tmp_path: Path) -> Iterator[Callable[..., RunWriter]]:
    """Makes runs under tmp_path/runs and closes them at the end."""
    samples, writers = Samples(), []

    def make(name: str | None = "one", **changes: Any) -> RunWriter:
        writer = create_run(tmp_path / "runs", samples.setup(**changes), samples.session, name=name)
        writers.append(writer)
        return writer

    yield make
    for writer in writers:
        writer.close()


@pytest.fixture
def writer(new_run: Callable[..., RunWriter]) -> RunWriter:
    """The writer of a new run with the name "one"."""
    return new_run()
