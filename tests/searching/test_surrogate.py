"""The expected gain of a training, compared with samples and in a search."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nas.common.pareto import hypervolume
from nas.searching.algorithm import REPEAT, TrialResult
from nas.searching.archive import Archive, expected_gain
from nas.store import Proposal

LEVELS = 12  # of quality: a landscape that is soon known, under noise


def test_expected_gain_equals_the_mean_over_samples() -> None:
    rng = np.random.default_rng(0)
    front = np.array([[0.2, 0.7], [0.5, 0.4], [0.6, 0.5]])
    for row in ([0.45, 0.5], [0.3, 0.3], [0.55, 0.6]):
        quality = row[0] + 0.1 * rng.standard_normal(2000)
        before = hypervolume(front.tolist(), (1.0, 1.0))
        after = [hypervolume([*front.tolist(), [q, row[1]]], (1.0, 1.0)) for q in quality]
        found = expected_gain(front, np.array(row), np.array([0.1, 0.0]))
        assert found == pytest.approx(np.mean(after) - before, rel=0.15, abs=5e-4)


def search(kit: Any, count: int, noise: float, *, lag: int, repeats: bool) -> list[Proposal]:
    """Run a search in which the quality is computed from the key and trainings are noisy."""
    proposer = kit.proposer("surrogate", lag=lag, repeats=repeats)
    rng, results, drawn = np.random.default_rng(0), [], []
    for number in range(count):
        drawn.append(proposer.propose(number, results[: max(0, number - lag + 1)])[-1])
        quality = int(str(drawn[-1].key), 16) % LEVELS / 20 + noise * rng.standard_normal()
        results.append(TrialResult.of(drawn[-1], [(-quality, drawn[-1].costs["macs"])]))
    return drawn


def test_surrogate_reevaluates_under_noise(kit: Any) -> None:
    drawn = search(kit, 60, 0.05, lag=8, repeats=True)
    again = [p for p in drawn if p.operator == REPEAT and p.number % 10 != 9]
    assert again
    for proposal in again:
        first = next(p for p in drawn if p.key == proposal.key)
        assert first.number < proposal.number
        assert (first.costs, first.name, first.genome) == (
            proposal.costs,
            proposal.name,
            proposal.genome,
        )
        assert proposal.verdict == "repeated"


@pytest.mark.slow
def test_surrogate_avoids_mechanisms_that_will_miss_a_gate(
    kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def num_missed() -> int:
        """Number of the last proposals of a search that miss a gate: those with a GELU."""
        proposer, missed = kit.proposer("surrogate", lag=1), []
        results: list[TrialResult] = []
        for number in range(70):
            proposal = proposer.propose(number, results)[-1]
            missed.append(any(node.op == "gelu" for node in proposal.genome.nodes))
            row = (-(int(str(proposal.key), 16) % LEVELS) / 20, proposal.costs["macs"])
            results.append(TrialResult.of(proposal, [row], is_ok=not missed[-1]))
        return sum(missed[30:])

    informed = num_missed()
    monkeypatch.setattr(Archive, "p_feasible", lambda _, candidates: np.ones(len(candidates)))
    uninformed = num_missed()
    assert informed < 0.6 * uninformed, (informed, uninformed)
