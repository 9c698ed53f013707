"""A run of any size for tests of displays: real genomes and invented trainings."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from nas.common.objectives import Objective
from nas.common.search_config import SearchConfig
from nas.compiler import formula
from nas.evaluation.trial import Budget, Evaluation, Report, Training
from nas.genome import Genome
from nas.genome.canonical import canonicalise, digest
from nas.space import load_space
from nas.space.rules import load_policy
from nas.space.vary import Variation
from nas.store import Document, Proposal, RunSetup, Session, rows
from nas.store.database import Database
from nas.store.folder import DATABASE_FILE, create_run
from nas.store.frozen import frozen_space
from nas.store.records import Estimate

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
OBJECTIVES = (
    Objective("accuracy", "max", "fraction", "share got right", 1.0, 0.1, is_metric=True),
    Objective("time_ms", "min", "ms", "predicted time", 0.0, 50.0, is_metric=False),
    Objective("macs", "min", "MACs", "multiply-adds", 0.0, 7e6, is_metric=False),
)
POPULATION = 24
WORKERS = 8
DISTINCT = 10_000  # beyond, genomes repeat; digests never


def record_big_run(root: Path, size: int, seed: int = 0) -> Path:
    """Record a finished run of ``size`` mechanisms with a training each; one in fifty fails."""
    rng = np.random.default_rng(seed)
    space = load_space("attention_v2")
    genomes = _genomes(Variation(space, load_policy(space.policy)), min(size, DISTINCT), rng)
    setup = RunSetup(
        space=frozen_space(space)[0],
        policy=frozen_space(space)[1],
        task=Document("vit-cifar10", "kind: images\nname: vit-cifar10\n", "0011223344556677"),
        config=SearchConfig("surrogate", POPULATION, -(-size // POPULATION), seed),
        objectives=OBJECTIVES,
    )
    session = Session("nas search --space attention_v2", {"nas": "0.1.0"}, "a CPU", WORKERS)
    name = f"big-{size}"
    with create_run(root, setup, session, name=name, clock=lambda: NOON) as writer:
        writer.finish()
    database = Database.open_to_write(root / name / DATABASE_FILE)
    with database.transaction():
        _fill(database, genomes, size, rng)
    database.checkpoint()
    database.close()
    return root / name


def _genomes(
    variation: Variation, count: int, rng: np.random.Generator
) -> list[tuple[Genome, str]]:
    """Genomes in normal form, distinct, and their formulas."""
    genomes: dict[str, tuple[Genome, str]] = {}
    while len(genomes) < count:
        genome = canonicalise(variation.sample(rng))
        genomes.setdefault(digest(genome), (genome, formula(genome)))
    return list(genomes.values())


def _fill(
    database: Database, genomes: list[tuple[Genome, str]], size: int, rng: np.random.Generator
) -> None:
    quality = rng.normal(0.33, 0.04, size).clip(0.1, 0.6)
    times, macs = rng.lognormal(2.5, 0.7, size), rng.integers(0, 6_000_000, size)
    # Quality rises with time, plus noise.
    quality = quality + 0.05 * np.log1p(times) - 0.12
    keys = [f"{value:016x}" for value in rng.integers(0, 2**63, size)]
    order = sorted(range(size), key=lambda i: (times[i], -quality[i]))
    best, front = 0.0, set()
    for i in order:
        if quality[i] > best and i % 50:
            best, _ = quality[i], front.add(i)
    for i in range(size):
        genome, text = genomes[i % len(genomes)]
        parents = tuple(keys[int(j)] for j in rng.integers(0, i, 2)) if i > POPULATION else ()
        costs = {
            "macs": float(macs[i]),
            "params": float(macs[i] % 33_000),
            "kv_cache_bytes_per_token": 512.0,
            "time_ms": float(times[i]),
        }
        operator = "crossover" if parents else "sample"
        proposal = Proposal(
            i, 0, keys[i], keys[i], genome, text, operator, None, parents, "new", "", costs
        )
        moment = rows.from_datetime(NOON + timedelta(seconds=i))
        database.insert("proposals", rows.to_row(proposal) | {"recorded": moment})
        ended = rows.from_datetime(NOON + timedelta(seconds=10 + i))
        evaluation = _evaluation(float(quality[i]), i, rng)
        training = Training("search", "0" * 16, "vit-cifar10", keys[i], "", 0, evaluation)
        row = rows.training_to_row(training) | {"recorded": ended}
        database.insert("trainings", row)
        if evaluation.is_ok:
            means = {"accuracy": float(quality[i]), "time_ms": times[i], "macs": costs["macs"]}
            estimate = Estimate(keys[i], means, {"accuracy": 0.01}, float(rng.random()), i in front)
            last = -(-size // POPULATION) - 1
            database.insert("estimates", rows.to_row(estimate) | {"generation": last})
    for number in range(-(-size // POPULATION)):
        ended = rows.from_datetime(NOON + timedelta(seconds=10 + (number + 1) * POPULATION))
        share = 1 - 0.7 * 0.995**number
        row = {"number": number, "hypervolume": share / 3, "best": share / 2, "finished": ended}
        database.insert("generations", row)


def _evaluation(quality: float, index: int, rng: np.random.Generator) -> Evaluation:
    score = round(quality + float(rng.normal(0, 0.01)), 4)
    is_ok = index % 50 != 0
    reports = tuple(
        Report(e, float(rng.normal(2.3 - 0.2 * e, 0.1)), _metrics(score * e / 3, rng), 2.4 * e)
        for e in (1, 2, 3)
    )
    return Evaluation(
        status="ok" if is_ok else "failed",
        reason=None if is_ok else "diverged",
        metrics=_metrics(score, rng) if is_ok else {},
        reports=reports,
        seed=int(rng.integers(0, 2**31)),
        budget=Budget(3, 2880, "bfloat16"),
        wall_seconds=float(WORKERS * rng.uniform(0.7, 1.0)),
        core_seconds=float(rng.uniform(4, 10)),
        peak_memory_bytes=int(rng.integers(2**29, 2**30)),
        worker=f"host:{index % WORKERS}",
        hardware="a CPU",
        execution="cpu, eager",
        error=None if is_ok else "the loss is not a number",
    )


def _metrics(score: float, rng: np.random.Generator) -> dict[str, float]:
    return {"accuracy": score, "log_loss": float(rng.normal(1.7, 0.1))}
