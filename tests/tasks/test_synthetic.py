"""Synthetic sequences: content, causality, and separation of mechanisms."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nas.evaluation.trainer import train_candidate
from nas.evaluation.trial import Trial
from nas.genome import Visibility
from nas.genome.mechanisms import mechanism
from nas.tasks import load_task
from nas.tasks.base import IGNORE_INDEX
from tests.genomes import build


def plain(normaliser):
    return build(("scaled_dot_product", "qk"), (normaliser, [0]), ("weighted_sum", [1, "v"]))


# Mechanisms that cannot look up a token by its content, or not far enough.
OTHERS = {
    "uniform": mechanism("uniform").genome,
    "linear attention": plain("softmax_free"),
    "raw sigmoid": plain("sigmoid"),
    "window of 8": replace(mechanism("mha").genome, visibility=Visibility(window=8)),
    "champion_2025": mechanism("champion_2025").genome,
}


def test_recall_asks_each_key_once_for_its_value():
    data = load_task("recall").load()
    tokens, targets = data.train["tokens"], data.train["targets"]
    assert (tokens.shape, targets.shape) == ((7200, 48), (7200, 16))
    for row, wanted in zip(tokens[:50].tolist(), targets[:50].tolist(), strict=True):
        keys, values, queries = row[0:32:2], row[1:32:2], row[32:]
        assert len(set(keys)) == 16
        assert sorted(queries) == sorted(keys)
        assert max(keys) < 64 <= min(values) <= max(values) < 80
        stored = dict(zip(keys, values, strict=True))
        assert [stored[query] - 64 for query in queries] == wanted


def test_induction_asks_wherever_a_key_was_seen_before():
    data = load_task("induction").load()
    tokens, targets = data.train["tokens"], data.train["targets"]
    assert (tokens.shape, targets.shape) == ((24_000, 32), (24_000, 32))
    for row, wanted in zip(tokens[:50].tolist(), targets[:50].tolist(), strict=True):
        stored = {}
        for place in range(0, 32, 2):
            key, value = row[place], row[place + 1]
            assert key < 8 <= value < 16
            assert wanted[place] == stored.get(key, IGNORE_INDEX)
            assert wanted[place + 1] == IGNORE_INDEX
            assert stored.setdefault(key, value - 8) == value - 8


def test_copying_asks_for_the_symbols_in_order():
    data = load_task("copying").load()
    tokens, targets = data.train["tokens"], data.train["targets"]
    assert (tokens.shape, targets.shape) == ((19_200, 40), (19_200, 8))
    for row, wanted in zip(tokens[:50].tolist(), targets[:50].tolist(), strict=True):
        assert [token for token in row if token < 16] == wanted
        assert set(row[:32]) - {16} <= set(range(16))
        assert row[32:] == [17] * 8


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("name", "least", "most", "seconds", "failing"),
    [
        ("recall", 0.99, 0.25, 8, None),
        ("induction", 0.99, 0.40, 12, ["uniform", "linear attention"]),
        ("copying", 0.85, 0.40, 12, ["uniform"]),
    ],
)
def test_tasks_separate_mechanisms_for_every_seed(name, least, most, seconds, failing, seed):
    """Mechanisms that look up tokens by content learn the task; the failing ones do not."""
    task = load_task(name)
    data = task.load()
    learnt = train(mechanism("mha").genome, task, data, seed)
    assert learnt.metrics["accuracy"] >= least
    assert learnt.core_seconds <= seconds
    for other in failing or OTHERS:
        assert train(OTHERS[other], task, data, seed).metrics["accuracy"] <= most, other


def train(genome, task, data, seed=0):
    evaluation = train_candidate(Trial("key", genome, seed), task, data)
    assert evaluation.is_ok, evaluation.error
    return evaluation
