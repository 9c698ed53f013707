"""The encoding covers the space, budgets are kept, and each peer reports a front."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from benchmarks.peers.comparing import (
    OURS,
    PEERS,
    compare,
    hypervolume,
    is_installed,
    rediscovery,
    run,
    search_of,
    summary,
)
from benchmarks.peers.encodings import attention_genome
from benchmarks.peers.gp_peer import Candidates, expected_improvement
from benchmarks.peers.problem import DEFAULT, Problem, SpentError, bench
from benchmarks.peers.recorded import recorded
from benchmarks.tabular.table import load_table
from nas.common.pareto import hypervolume as volume
from nas.genome import FLAGS
from nas.space.vary import Variation

MHA = {
    "normaliser": "softmax", "left": "q", "right": "k", "extra": "none", "edges": "left",
    "second": "none", "second_edge": "value", **dict.fromkeys(FLAGS, "yes"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("table", "count"), [("attention-bench", 932), ("recall-bench", 360), ("bytes-bench", 975)]
)
def test_encoding_covers_table_and_variation(table, count):
    space = bench(table)
    assert set(space.mechanisms) == set(load_table(table).mechanisms)
    assert len(space.mechanisms) == count
    operators = Variation(space.space, space.policy, space.table.setting.is_causal)
    rng = np.random.default_rng(0)
    genomes = [operators.sample(rng) for _ in range(200)]
    genomes += [operators.mutate(genome, rng)[0] for genome in genomes[:100]]
    keys = [space.filter.inspect(genome).key for genome in genomes]
    # The policy of bytes_bench forbids the normal form of a mechanism that rotates keys alone.
    assert sum(key == "" for key in keys) <= (20 if table == "bytes-bench" else 0)
    assert {key for key in keys if key} <= set(space.mechanisms)


def test_assignment_gives_expected_graph():
    genome = attention_genome({**MHA, "left": "v", "extra": "rope", "edges": "left+value"})
    assert genome.to_dict()["graph_def"] == [
        {"op": "rope", "inputs": ["v"]},
        {"op": "scaled_dot_product", "inputs": [0, "k"]},
        {"op": "softmax", "inputs": [1]},
        {"op": "weighted_sum", "inputs": [2, 0]},
    ]
    assert bench().decode(MHA) in bench().mechanisms


def test_repeats_cost_a_training_and_illegal_assignments_nothing():
    problem = Problem(recorded(DEFAULT)(0), budget=2)
    first, second = problem.train(MHA), problem.train(MHA)
    assert first is not None
    assert second is not None
    assert first[0] != second[0]
    assert problem.train({**MHA, "extra": "output_gate"}) is None
    assert problem.left == 0
    with pytest.raises(SpentError):
        problem.train(MHA)
    assert problem.reported() == [bench().decode(MHA)]


@pytest.mark.slow
def test_nsga2_beats_random_search_on_recorded_trainings():
    found, random = (
        [hypervolume(run(OURS[name], recorded(DEFAULT)(s), 120, s)) for s in range(16)]
        for name in ("nsga2", "random")
    )
    gains = np.subtract(found, random)
    assert gains.mean() > 3 * gains.std(ddof=1) / len(gains) ** 0.5


@pytest.mark.slow
def test_comparison_records_searches_and_summarises_them(tmp_path):
    names, record = ["nsga2", "random"], tmp_path / "searches.jsonl"
    measure = recorded(DEFAULT)
    compare(measure, names, range(1), [12, 13], record=record)
    searches = compare(measure, names, range(2), [12, 13], record=record)  # one is recorded
    assert len(record.read_text().splitlines()) == len(searches) == 4
    rows = {row["algorithm"]: row for row in summary(searches, 0.01, [13])}
    assert set(rows) == set(names)
    assert rows["nsga2"]["hypervolume"].error > 0
    assert {row["algorithm"] for row in rediscovery(searches, 0.01)} == set(names)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("peer", PEERS)
def test_peer_spends_the_budget_and_is_deterministic(peer):
    if not is_installed(peer):
        pytest.skip(f"{PEERS[peer][0]} is not installed")
    first, second = (run(search_of(peer), recorded(DEFAULT)(1), 26, 1) for _ in range(2))
    assert len(first.history) == 26
    assert first.history == second.history
    assert hypervolume(first) > 0


def test_expected_improvement_equals_mean_improvement_of_draws():
    costs = np.array([0.1, 0.3, 0.6, 0.2])
    means, errors = -np.array([0.4, 0.7, 0.6, 0.5]), np.array([0.0, 0.0, 0.0, 0.2])
    candidates = Candidates(list("abcd"), np.eye(4), costs, worst=-0.1)
    gain = expected_improvement(candidates, [0, 1, 2], means, errors)[3]
    known = [(means[i], costs[i]) for i in range(3)]
    draws = norm(means[3], errors[3]).ppf((np.arange(20_000) + 0.5) / 20_000)
    volumes = [volume([*known, (draw, costs[3])], (-0.1, 1.0)) for draw in draws]
    assert gain == pytest.approx(np.mean(volumes) - volume(known, (-0.1, 1.0)), rel=1e-3)
