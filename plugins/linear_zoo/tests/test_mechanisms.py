"""The mechanisms keep the promises of nas.testing, and are legal under the plug-in's policy."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import nas
from nas.genome.canonical import digest
from nas.genome.mechanisms import MECHANISMS
from nas.space.rules import load_policy, validate
from nas.testing import check_mechanism

NAMES = [n for p in MECHANISMS.plugins() if p.name == "linear_zoo" for n in p.members]
POLICY = Path(__file__).parents[1] / "policy.yaml"


@pytest.mark.parametrize("name", NAMES)
def test_mechanism_keeps_the_promises_of_all_mechanisms(name: str) -> None:
    check_mechanism(name)


def test_every_mechanism_is_registered_legal_and_new() -> None:
    assert len(NAMES) == 15
    assert len({digest(entry.genome) for entry in MECHANISMS.values()}) == len(MECHANISMS)
    policy = load_policy(str(POLICY))
    for name in NAMES:
        assert not validate(MECHANISMS[name].genome, policy), name


@pytest.mark.parametrize("name", NAMES)
def test_reading_is_written_for_a_terminal(name: str) -> None:
    entry = MECHANISMS[name]
    assert entry.reading.startswith(f"{entry.about}.\n\n    ")
    assert max(map(len, entry.reading.splitlines())) <= 80


@pytest.mark.parametrize("name", ["comba", "gated_deltanet2"])
def test_delta_rules_in_chunks_train_under_autocast(name: str) -> None:
    torch.manual_seed(0)
    block = nas.build_attention(name, dim=32, heads=4)
    x = torch.randn(2, 140, 32)
    exact = block(x, is_causal=True)
    with torch.autocast("cpu", torch.bfloat16):
        out = block(x, is_causal=True)
    out.float().square().mean().backward()
    torch.testing.assert_close(out.float(), exact, rtol=0.1, atol=0.1)
