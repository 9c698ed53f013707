"""Predicted times: functions of a calibration, finite, and increasing with the work."""

import math
from contextlib import suppress
from dataclasses import replace
from functools import cache

import pytest
import torch

from nas.common.errors import ConfigError, NasError
from nas.compiler import resolve
from nas.costs import CostContext, costs_of
from nas.costs.timing import calibrate
from nas.costs.timing.calibration import designs
from nas.costs.timing.work import amounts
from nas.genome import Genome, ModelSizes, Node, Placement, Projections, Rest, Visibility
from nas.genome.mechanisms import MECHANISMS
from tests.samples import samples

SIZES = ModelSizes(dim=16, heads=4, depth=4, tokens=9)
MHA = MECHANISMS["mha"].genome
OPTIONS = {
    "batch": 2,
    "precision": "float32",
    "device": "cpu",
    "is_causal": False,
    "qkv_bias": False,
}


def few_designs(tokens):
    return list(designs(tokens))[::6]


@pytest.fixture(scope="module")
def calibration():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nas.costs.timing.calibration.designs", few_designs)
        return calibrate(SIZES, **OPTIONS, seconds=0.0)


@cache
def kinds(work):
    """Return the kinds of work of all designs."""
    found = set()
    for genome in designs(SIZES.tokens):
        with suppress(NasError):
            found |= nonzero(work(resolve(genome, SIZES, None).plan))
    return found


def nonzero(work):
    return {kind for kind, amount in work.items() if amount}


def training_work(plan):
    return amounts(plan, SIZES, 2, is_causal=False)


def causal_work(plan):
    return amounts(plan, SIZES, 2, is_causal=True)


def equal_units(unit=1.0, **changes):
    """Return a calibration with the same unit time for every kind of work."""
    sizes = {"dim": 16, "heads": 4, "tokens": 9}
    units = dict.fromkeys(kinds(training_work), unit)
    return {"hardware": "a test", "torch": "2", **OPTIONS, **sizes, "units": units} | changes


def dot_product(score="scaled_dot_product", normaliser="softmax", window=None, **projections):
    nodes = (Node(score, ("q", "k")), Node(normaliser, (0,)), Node("weighted_sum", (1, "v")))
    return Genome(nodes, Projections(**projections), visibility=Visibility(window))


def time(genome, calibration=None, sizes=SIZES, **calls):
    context = CostContext(sizes, calibration=calibration or equal_units(), **calls)
    return costs_of(resolve(genome, sizes), context, ["time_ms"])["time_ms"]


def test_every_mechanism_has_a_finite_time_that_is_a_function_of_the_calibration(calibration):
    spaces = ("attention_v2", "attention_v1", "quickstart")
    genomes = dict.fromkeys(genome for name in spaces for genome in samples(name, 20))
    shuffled = calibration | {"units": dict(reversed(calibration["units"].items()))}
    times = []
    for genome in (*(mechanism.genome for mechanism in MECHANISMS.values()), *genomes):
        with suppress(NasError):  # not all mechanisms exist at these sizes
            times.append(time(genome, calibration))
            assert time(genome, calibration) == time(genome, shuffled) == times[-1]
    assert len(times) > 70
    assert all(0 < value < math.inf for value in times)


def test_more_work_takes_longer():
    one, half = ({"q_heads": share, "kv_heads": share} for share in ("one", "1/2"))
    assert time(dot_product(**one)) < time(dot_product(**half)) < time(MHA)
    assert time(dot_product(qk_dim="1/2")) < time(MHA)
    assert time(dot_product(has_wo=False)) < time(MHA)
    assert time(MHA) < time(dot_product(window=3))  # a mask over all pairs at this length
    assert time(MHA, equal_units(2.0)) == pytest.approx(2 * time(MHA))


def test_layers_of_a_hybrid_take_the_time_of_their_attention():
    hybrid = Placement(every=4, count=3, rest=Rest(window=3))
    qana, near = MECHANISMS["qana"].genome, replace(MHA, visibility=Visibility(3))
    expected = time(qana) * 3 / 4 + time(near) / 4
    assert time(replace(qana, placement=hybrid)) == pytest.approx(expected)


@pytest.mark.parametrize("work", [training_work, causal_work])
def test_all_work_of_the_named_mechanisms_is_measured(work):
    for mechanism in MECHANISMS.values():
        with suppress(NasError):  # not all mechanisms exist at these sizes
            found = nonzero(work(resolve(mechanism.genome, SIZES, None).plan))
            assert found <= kinds(work)


def test_unmeasured_work_takes_the_median_time():
    units = {kind: 1.0 for kind in kinds(training_work) if "qana" not in kind}
    qana = MECHANISMS["qana"].genome
    assert time(qana, equal_units(units=units)) == pytest.approx(time(qana), rel=0.2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 0}, "version: "),
        ({"tokens": 65}, "tokens: measured with"),
        ({"units": {"layer": math.nan}}, "units"),
    ],
)
def test_invalid_or_other_calibration_is_refused(change, words):
    with pytest.raises(ConfigError, match=f"(?s)calibration.*{words}"):
        time(MHA, equal_units(**change))


def test_calibration_of_other_calls_or_none_is_refused():
    with pytest.raises(ConfigError, match="is_causal: measured with False, asked with True"):
        time(MHA, is_causal=True)
    with pytest.raises(ConfigError, match="calibration"):
        costs_of(resolve(MHA, SIZES), CostContext(SIZES), ["time_ms"])


def test_causal_calibration_omits_unsafe_mechanisms(monkeypatch, calibration):
    monkeypatch.setattr("nas.costs.timing.calibration.designs", few_designs)
    sizes, state = ModelSizes(8, 2, 1, 5), torch.random.get_rng_state()
    options = OPTIONS | {"precision": "bfloat16", "is_causal": True, "qkv_bias": True}
    causal = calibrate(sizes, **options, seconds=0.0)
    assert "convolutional_score" not in causal["units"]
    calls = {"is_causal": True, "qkv_bias": True}
    assert time(MECHANISMS["mqa"].genome, causal, sizes, **calls) > 0
    assert torch.equal(torch.random.get_rng_state(), state)
