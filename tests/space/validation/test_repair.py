from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from nas.genome import Genome, Node
from nas.genome.primitives import get, names
from nas.genome.types import infer
from nas.space.validation import load_policy, nearest_legal, repair, validate, with_repairs

if TYPE_CHECKING:
    from nas.space.validation import Policy, Violation
    from tests.genomes import Build

OURS = load_policy("score_normalize_aggregate")
PUBLISHED = load_policy("published_2025")
SCORE, NORM = ("scaled_dot_product", "qk"), ("softmax", [0])
SUM = ("weighted_sum", [1, "v"])


@pytest.mark.parametrize(
    ("nodes", "mended"),
    [
        ((SCORE, ("weighted_sum", [0, "v"])), (SCORE, NORM, SUM)),
        ((SCORE, NORM), (SCORE, NORM, SUM)),
        ((("multiply", "qk"), NORM, SUM), (SCORE, NORM, SUM)),
        ((("scaled_dot_product", "q"), NORM, SUM), (SCORE, NORM, SUM)),
        ((SCORE, NORM, ("weighted_sum", [1, "k"])), (SCORE, NORM, SUM)),
        ((), (SCORE, NORM, SUM)),
        ((("linear", "v"),), (("linear", "v"), SCORE, ("softmax", [1]), ("weighted_sum", [2, 0]))),
    ],
)
def test_the_nearest_legal_genome(
    genome: Build, nodes: tuple[object, ...], mended: tuple[object, ...]
) -> None:
    assert nearest_legal(genome(*nodes), OURS) == genome(*mended)


def test_labels_are_mended_by_labels(genome: Build) -> None:
    broken = genome(SCORE, NORM, SUM, q_heads="3/4", kv_heads="1/2")
    repaired = nearest_legal(broken, OURS)
    assert repaired is not None
    assert repaired.nodes == broken.nodes
    assert repaired.projections != broken.projections


def test_each_violation_carries_the_repair(genome: Build) -> None:
    broken = genome(SCORE, ("weighted_sum", [0, "v"]))
    violations = with_repairs(broken, OURS, validate(broken, OURS))
    assert all(v.repair is not None and not validate(v.repair, OURS) for v in violations)
    assert with_repairs(genome(SCORE, NORM, SUM), OURS, ()) == ()


@pytest.mark.parametrize("policy", [OURS, PUBLISHED], ids=lambda p: p.name)
def test_repairs_of_random_graphs_are_legal_and_well_typed(policy: Policy) -> None:
    rng = np.random.default_rng(0)
    ops = names()
    for _ in range(10):
        nodes: list[Node] = []
        for index in range(int(rng.integers(1, 6))):
            op = ops[int(rng.integers(len(ops)))]
            refs = ["q", "k", "v", *range(index)]
            inputs = tuple(refs[int(rng.integers(len(refs)))] for _ in range(int(rng.integers(3))))
            nodes.append(Node(op, inputs))
        broken = Genome(tuple(nodes))
        if validate(broken, policy):
            repaired = nearest_legal(broken, policy)
            assert repaired is not None
            assert not validate(repaired, policy)
            assert not infer(repaired).problems
            assert all(get(node.op) for node in repaired.nodes)


@pytest.mark.parametrize("count", [1, 6, 60])
def test_the_search_for_a_repair_is_bounded(
    genome: Build, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Nodes with 16 inputs have 250 neighbours each, of which two edits make tens of thousands."""
    judged = 0

    def counted(found: Genome, policy: Policy) -> tuple[Violation, ...]:
        nonlocal judged
        judged += len(found.nodes)
        return validate(found, policy)

    monkeypatch.setattr(repair, "validate", counted)
    wide = [("add", "v" * 16) for _ in range(count)]
    broken = genome(*wide, SCORE, ("softmax", [count]), ("weighted_sum", [count + 1, 0]))
    assert nearest_legal(broken, OURS) is not None
    assert judged < repair.MAX_JUDGED + 10_000  # and those that ask what is wrong with a parent


def test_a_policy_that_forbids_everything_has_no_repair(genome: Build) -> None:
    from nas.space.validation import PolicyFile, compile_policy

    file = PolicyFile.model_validate(
        {"name": "no", "rules": [{"name": "r", "to": "output", "none": "input"}]}
    )
    assert nearest_legal(genome(SCORE, NORM, SUM), compile_policy(file, "no")) is None
