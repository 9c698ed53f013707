"""Which way is the fastest: measured for every pattern at a task's shapes."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import torch

from nas.kernels import place, using, way
from nas.measurement import tuning
from nas.measurement.tuning import PATTERNS, Shapes, measure_ways

SMALL = Shapes(dim=8, heads=2, tokens=5, train_batch=3, judge_batch=4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_pattern_has_a_way_in_training_and_in_judging(dtype):
    found = measure_ways(SMALL, device="cpu", dtype=dtype, rounds=1)
    precision = str(dtype).removeprefix("torch.")
    for pattern in PATTERNS:
        for direction in ("forward", "forward_backward"):
            ways = found.pop(f"{pattern.name} {direction} cpu {precision} 5")
            assert list(ways) == list(pattern.widths(SMALL))
            assert set(ways.values()) <= set(pattern.ways)
    assert not found


def test_every_way_computes_the_same():
    for pattern in PATTERNS:
        for width, heads in pattern.widths(SMALL).items():
            shapes = pattern.operands(2, heads, 5, width)
            operands = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]
            where = place(pattern.name, operands[0], 5)
            results = []
            for name in pattern.ways:
                with using({where: {width: name}}):
                    out = pattern.compute(width, *operands)
                    results.append([out, *torch.autograd.grad(out.sin().sum(), operands)])
            for other in results[1:]:
                torch.testing.assert_close(other, results[0], rtol=1e-9, atol=1e-12)


def sleepy(slow, seconds):
    """A pattern, one way of which takes longer by so many seconds of work."""

    def compute(width, x):
        end = time.process_time() + (seconds if way("sleepy", x, 5, 4, "") == slow else 0.0)
        while time.process_time() < end:
            pass
        return x * 1.0

    pattern = replace(PATTERNS[0], name="sleepy", ways=("one", "two"), compute=compute)
    return replace(pattern, operands=lambda b, h, n, w: ((b, h, n, w),))


@pytest.mark.parametrize(("slow", "chosen"), [("one", "two"), ("two", "one")])
def test_the_slower_way_is_not_chosen(monkeypatch, slow, chosen):
    monkeypatch.setattr(tuning, "PATTERNS", (sleepy(slow, 0.01),))
    found = measure_ways(SMALL, device="cpu", dtype=torch.float32, rounds=2)
    assert {w for ways in found.values() for w in ways.values()} == {chosen}


def test_a_tie_keeps_the_first_way():
    assert tuning._clearly_fastest({"a": 1.0, "b": 0.97, "c": 1.2}) == "a"
    assert tuning._clearly_fastest({"a": 1.0, "b": 0.90, "c": 0.88}) == "b"


def test_what_would_not_fit_into_memory_is_not_measured():
    long = replace(SMALL, tokens=10**6)
    assert measure_ways(long, device="cpu", dtype=torch.float32) == {}


def test_a_large_batch_is_measured_in_part(monkeypatch):
    monkeypatch.setattr(tuning, "ENOUGH_PAIRS", 2 * 5 * 5 * 7)
    seen = []
    pattern = replace(
        PATTERNS[0], operands=lambda b, h, n, w: seen.append((b, h)) or ((1, 1, 5, w),) * 3
    )
    monkeypatch.setattr(tuning, "PATTERNS", (pattern,))
    measure_ways(replace(SMALL, train_batch=10**6), device="cpu", dtype=torch.float32, rounds=1)
    assert seen == [(7, 2), (4, 2), (14, 1), (4, 1)]


def test_measuring_draws_no_random_number():
    before = torch.get_rng_state()
    measure_ways(SMALL, device="cpu", dtype=torch.float32, rounds=1)
    assert torch.equal(torch.get_rng_state(), before)
