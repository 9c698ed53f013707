"""Every primitive has costs at any size: each of its operations has a counting rule."""

from __future__ import annotations

import pytest

import nas.costs.profile
from nas.costs import attention_cost
from nas.genome import Genome, Node
from nas.genome.primitives import get, names
from nas.genome.primitives.base import Kind
from nas.testing.cases import Case, cases

CASES = [case for name in names() for case in cases(get(name))]


def genome_of(case: Case) -> Genome | None:
    """Standard attention with the primitive beside or in it; None for operands of other kinds."""
    refs, streams = {Kind.SCORES: 0, Kind.WEIGHTS: 1}, iter("qkv")
    kinds = [port.kind for port in case.signature.inputs]
    if not {*kinds, case.signature.output.kind} <= {*refs, Kind.TOKENS}:
        return None
    inputs = tuple(refs[kind] if kind in refs else next(streams) for kind in kinds)
    derived, defaults = case.primitive.derived, case.primitive.defaults()
    params = {k: v for k, v in case.params.items() if v != defaults[k] and k not in derived}
    nodes = [Node("scaled_dot_product", ("q", "k")), Node("softmax", (0,))]
    nodes.append(Node(case.primitive.name, inputs, tuple(sorted(params.items()))))
    if case.signature.output.kind is Kind.SCORES:
        nodes.append(Node("softmax", (2,)))
    if case.signature.output.kind is not Kind.TOKENS:
        nodes.append(Node("weighted_sum", (len(nodes) - 1, "v")))
    return Genome(tuple(nodes))


def test_every_primitive_is_counted_without_computing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nas.costs.profile, "_COMPUTED_NUMBERS", 0)
    for case in CASES:
        found = None if case.params.get("least_heads") == "3/4" else genome_of(case)
        if found is not None:
            assert attention_cost(found, dim=48, heads=4, tokens=20)["macs"] > 0
