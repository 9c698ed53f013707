"""A small recorded run, for whoever shows or reads runs: made once, through the store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from nas.canonical import canonicalise, digest, resolved_digest
from nas.compiler import formula
from nas.evaluation.record import OBJECTIVES, Evaluation, training_seed
from nas.genome import Genome
from nas.mechanisms import seeds
from nas.space import load_space
from nas.store import (
    Counts,
    Document,
    Generation,
    Proposal,
    RunSetup,
    RunWriter,
    Session,
    create_run,
    front,
    front_hypervolume,
)
from nas.training.curve import Epoch
from nas.validation import load_policy
from nas.variation import Variation

SIZES = {"dim": 32, "heads": 4, "depth": 2}
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
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
        task=Document("vit-cifar10", "name: vit-cifar10\n", "0011223344556677"),
        algorithm="nsga2",
        population=population,
        generations=generations,
        repeats=repeats,
        objectives=(OBJECTIVES["accuracy"], OBJECTIVES["macs"]),
        ideal_point=(1.0, 0.0),
        reference_point=(0.1, 4_000_000.0),
    )
    versions = {"nas": "0.1.0", "torch": "2.9"}
    session = Session(f"nas search --space {space_name}", versions, "a CPU", 2)
    with create_run(root, setup, session, name=name) as writer:
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

    def record(self, space_name: str) -> None:
        space = load_space(space_name)
        policy = load_policy(space.policy)
        operators = Variation(space, policy)
        for number in range(self._setup.generations):
            made = []
            if number == 0:
                made = [(m.genome, f"mechanism:{m.name}", ()) for m in seeds(space, policy)]
            while len(made) < self._setup.population:
                if number == 0 or self._rng.random() < 0.2:
                    made.append((operators.sample(self._rng), "sample", ()))
                else:
                    parent = self._known[self._rng.integers(len(self._known))]
                    genome, origin = operators.mutate(parent.genome, self._rng)
                    made.append((genome, origin, (parent.digest,)))
            self._generation(
                number, [self._proposal(number, i, *parts) for i, parts in enumerate(made)]
            )

    def _proposal(
        self, number: int, position: int, genome: Genome, origin: str, parents: tuple[str, ...]
    ) -> Proposal:
        genome = canonicalise(genome)
        key = resolved_digest(genome, **SIZES)
        outcome = "replayed" if key in self._keys else "new"
        self._keys.add(key)
        return Proposal(
            number, position, digest(genome), key, genome, formula(genome), origin, parents, outcome
        )

    def _generation(self, number: int, proposals: list[Proposal]) -> None:
        self._writer.record_proposals(proposals)
        fresh = [p for p in proposals if p.outcome == "new"]
        failing = next((p for p in fresh if p.origin == "sample"), None) if number == 0 else None
        for proposal in fresh:
            for repeat in range(self._setup.repeats):
                assert proposal.key is not None
                result = self._evaluation(proposal, repeat, fails=proposal is failing)
                self._writer.record_evaluation(proposal.key, repeat, result)
        self._known += [p for p in fresh if p is not failing]
        self._end(number, proposals, len(fresh), int(failing is not None))

    def _evaluation(self, proposal: Proposal, repeat: int, *, fails: bool) -> Evaluation:
        nodes, projections = len(proposal.genome.nodes), proposal.genome.projections
        flags = (projections.has_wq, projections.has_wk, projections.has_wv, projections.has_wo)
        macs = 150_000.0 * nodes + 400_000.0 * sum(flags)
        accuracy = float(0.45 - 0.35 / (nodes + sum(flags)) + self._rng.normal(0, 0.02))
        assert proposal.key is not None
        objectives = {
            "accuracy": accuracy,
            "macs": macs,
            "params": macs / 64,
            "kv_cache_bytes_per_token": 256,
        }
        return Evaluation(
            status="failed" if fails else "ok",
            reason="diverged" if fails else None,
            objectives={} if fails else objectives,
            curve=(Epoch(1, 2.2, accuracy / 2), Epoch(2, 1.9, accuracy)),
            seed=training_seed(self._setup.seed, proposal.key, repeat),
            budget="2 epochs x 1024 images",
            wall_seconds=3.5,
            core_seconds=3.0,
            peak_memory_bytes=2**28,
            worker="host:1",
            error="the loss is not a number" if fails else None,
        )

    def _end(self, number: int, proposals: list[Proposal], num_new: int, failed: int) -> None:
        members = front(self._writer.run)
        counts = Counts(len(proposals), num_new, len(proposals) - num_new, 0, failed)
        self._writer.record_generation(
            Generation(
                number=number,
                started=NOON + timedelta(minutes=number),
                finished=NOON + timedelta(minutes=number + 1),
                hypervolume=front_hypervolume(self._writer.run, members),
                best_accuracy=members[0].objectives["accuracy"],
                counts=counts,
                front=tuple(m.digest for m in members),
            )
        )
