"""A small recorded run, for whoever shows or reads runs: made once, through the store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from nas.canonical import canonicalise, digest, resolved_digest
from nas.compiler import formula
from nas.evaluation.trial import Budget, Evaluation, Report, training_seed
from nas.genome import Genome, ModelSizes
from nas.mechanisms import seeds
from nas.objectives import Objective
from nas.space import load_space
from nas.store import Document, Proposal, RunSetup, RunWriter, Session, create_run
from nas.validation import load_policy
from nas.variation import Variation

SIZES = ModelSizes(32, 4, 2, 65)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ACCURACY = Objective("accuracy", "max", "fraction", "share got right", 1.0, 0.1, is_metric=True)
MACS = Objective("macs", "min", "MAC", "multiply-adds", 0.0, 4_000_000.0, is_metric=False)
MakeRun = Callable[..., Path]


@pytest.fixture(scope="session")
def make_run() -> MakeRun:
    """Makes recorded runs: real genomes, invented results."""
    return record_run


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
    population: int = 12,
    space_name: str = "attention_v2",
    is_finished: bool = True,
) -> Path:
    """Record a run whose first candidate after the mechanisms has failed."""
    space = load_space(space_name)
    setup = RunSetup(
        seed=7,
        space=Document.of(space.name, "name: attention_v2\n"),
        policy=Document.of(space.policy, "rules: []\n"),
        task=Document("vit-cifar10", "kind: images\nname: vit-cifar10\n", "0011223344556677"),
        algorithm="nsga2",
        population=population,
        generations=generations,
        repeats=repeats,
        objectives=(ACCURACY, MACS),
    )
    versions = {"nas": "0.1.0", "torch": "2.9"}
    session = Session(f"nas search --space {space_name}", versions, "a CPU", 2)
    minutes = count()
    clock = lambda: NOON + timedelta(minutes=next(minutes))  # noqa: E731
    with create_run(root, setup, session, name=name, clock=clock) as writer:
        _Recorder(writer, setup).record(space_name)
        if is_finished:
            writer.finish()
    return root / name


class _Recorder:
    """Proposes mechanisms, samples and mutants, and invents what their trainings gave."""

    def __init__(self, writer: RunWriter, setup: RunSetup) -> None:
        self._writer, self._setup = writer, setup
        self._rng = np.random.default_rng(setup.seed)
        self._keys: set[str] = set()
        self._known: list[Proposal] = []
        self._is_to_fail = True

    def record(self, space_name: str) -> None:
        space = load_space(space_name)
        policy = load_policy(space.policy)
        operators = Variation(space, policy)
        named = [(m.genome, "mechanism", m.name) for m in seeds(space, policy)]
        size = self._setup.population
        for number in range(self._setup.generations * size):
            attempts: list[Proposal] = []
            while not (attempts and attempts[-1].is_new):
                parents: tuple[str, ...] = ()
                if named and number < size:
                    genome, operator, name = named.pop(0)
                elif not self._known or self._rng.random() < 0.2:
                    genome, operator, name = operators.sample(self._rng), "sample", None
                else:
                    parent = self._known[self._rng.integers(len(self._known))]
                    genome, operator = operators.mutate(parent.genome, self._rng)
                    name, parents = None, (parent.digest,)
                place = (number, len(attempts))
                attempts.append(self._proposal(place, genome, operator, name, parents))
            self._writer.record_proposals(attempts)
            self._train(attempts[-1])

    def _proposal(
        self,
        place: tuple[int, int],
        genome: Genome,
        operator: str,
        name: str | None,
        parents: tuple[str, ...],
    ) -> Proposal:
        genome = canonicalise(genome, SIZES)
        key = resolved_digest(genome, SIZES)
        is_new = key not in self._keys
        self._keys.add(key)
        return Proposal(
            *place,
            digest=digest(genome),
            key=key,
            genome=genome,
            formula=formula(genome),
            operator=operator,
            name=name,
            parents=parents,
            verdict="new" if is_new else "replayed",
            costs=_costs(genome) if is_new else {},
        )

    def _train(self, proposal: Proposal) -> None:
        fails = proposal.name is None and self._is_to_fail
        self._is_to_fail &= not fails
        for repeat in range(self._setup.repeats):
            result = self._evaluation(proposal, repeat, fails=fails)
            self._writer.record_evaluation(str(proposal.key), repeat, result)
        if not fails:
            self._known.append(proposal)

    def _evaluation(self, proposal: Proposal, repeat: int, *, fails: bool) -> Evaluation:
        size = proposal.costs["macs"] / 400_000
        accuracy = float(0.45 - 0.35 / size + self._rng.normal(0, 0.02))
        return Evaluation(
            status="failed" if fails else "ok",
            reason="diverged" if fails else None,
            metrics={} if fails else {"accuracy": accuracy},
            reports=(
                Report(1, 2.2, {"accuracy": accuracy / 2}, 1.5),
                Report(2, 1.9, {"accuracy": accuracy}, 3.0),
            ),
            seed=training_seed(self._setup.seed, str(proposal.key), repeat),
            budget=Budget(2, 1024, "float32"),
            wall_seconds=3.5,
            core_seconds=3.0,
            peak_memory_bytes=2**28,
            worker="host:1",
            hardware="a CPU",
            execution="eager",
            error="the loss is not a number" if fails else None,
        )


def _costs(genome: Genome) -> dict[str, float]:
    nodes, projections = len(genome.nodes), genome.projections
    flags = (projections.has_wq, projections.has_wk, projections.has_wv, projections.has_wo)
    macs = 150_000.0 * nodes + 400_000.0 * sum(flags)
    return {"macs": macs, "params": macs / 64, "kv_cache_bytes_per_token": 256.0}
