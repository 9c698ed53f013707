"""Predicted times: functions of a calibration, finite, and increasing with the work."""

import json
import math
import warnings
from contextlib import suppress
from dataclasses import replace
from functools import cache

import pytest
import torch

from nas.common.errors import ConfigError, GenomeError, NasError
from nas.compiler import build_attention, make_plan, resolve
from nas.costs import COSTS, CostContext, costs_of
from nas.costs.timing import calibrate, predict_ms
from nas.costs.timing.calibration import designs
from nas.costs.timing.work import amounts, decoding_amounts
from nas.genome import Genome, ModelSizes, Node, Projections, Visibility
from nas.genome.mechanisms import MECHANISMS
from tests.samples import samples

SIZES = ModelSizes(dim=16, heads=4, depth=4, tokens=9)
ALIKE = {
    "batch": 2,
    "precision": "float32",
    "device": "cpu",
    "is_causal": False,
    "qkv_bias": False,
}


def few(tokens):
    return list(designs(tokens))[::4]


@pytest.fixture(scope="module")
def calibration():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nas.costs.timing.calibration.designs", few)
        return calibrate(SIZES, **ALIKE, seconds=0.0)


@pytest.fixture(scope="module")
def drawn():
    names = ("attention_v2", "attention_v1", "quickstart")
    return list(dict.fromkeys(genome for name in names for genome in samples(name, 70)))


def exists(genome):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            build_attention(genome, SIZES.dim, SIZES.heads)
        except NasError:
            return False
    return True


def test_calibration_is_json_with_its_sizes_and_hardware(calibration):
    again = json.loads(json.dumps(calibration, allow_nan=False))
    assert again == calibration
    assert (again["dim"], again["heads"], again["tokens"], again["batch"]) == (16, 4, 9, 2)
    assert again["hardware"]
    assert again["torch"]
    mha = MECHANISMS["mha"].genome
    assert predict_ms(resolve(mha, SIZES), again) == predict_ms(resolve(mha, SIZES), calibration)


def test_prediction_is_a_function_of_genome_sizes_and_calibration(calibration, drawn):
    first = [predict_ms(resolve(genome, SIZES), calibration) for genome in drawn]
    assert first == [predict_ms(resolve(genome, SIZES), calibration) for genome in drawn]
    shuffled = calibration | {"units": dict(reversed(calibration["units"].items()))}
    assert first == [predict_ms(resolve(genome, SIZES), shuffled) for genome in drawn]


def test_every_mechanism_has_a_finite_time(calibration, drawn):
    genomes = [*(found.genome for found in MECHANISMS.values()), *drawn]
    there = [genome for genome in genomes if exists(genome)]
    assert len(there) > 150
    for genome in there:
        time = predict_ms(resolve(genome, SIZES), calibration)
        assert math.isfinite(time), genome
        assert time > 0, genome


def dot_product(score="scaled_dot_product", normaliser="softmax", window=None, **projections):
    nodes = (Node(score, ("q", "k")), Node(normaliser, (0,)), Node("weighted_sum", (1, "v")))
    return Genome(nodes, Projections(**projections), visibility=Visibility(window))


@cache
def units(value=1.0):
    """Return a calibration with equal unit times for every kind of work."""
    kinds: set[str] = set()
    for genome in designs(SIZES.tokens):
        with suppress(NasError):
            kinds |= amounts(make_plan(genome, SIZES), SIZES, 2, is_causal=False).keys()
    where = {"hardware": "a test", "torch": "2", **ALIKE}
    sizes = {"dim": 16, "heads": 4, "tokens": 9}
    return {"version": 1, **where, **sizes, "units": dict.fromkeys(kinds, value)}


def test_more_work_takes_longer():
    known = units()

    def time(**changes):
        return predict_ms(resolve(dot_product(**changes), SIZES), known)

    assert time(q_heads="one", kv_heads="one") < time(q_heads="1/2", kv_heads="1/2") < time()
    assert time(qk_dim="1/2") < time()
    assert time(has_wo=False) < time()
    assert time() < time(window=3)  # a mask over all pairs: one block at this length
    assert predict_ms(resolve(dot_product(), SIZES), units(2.0)) == pytest.approx(2 * time())


def test_layers_outside_the_placement_take_the_time_of_standard_attention():
    known = units()
    qana = MECHANISMS["qana"].genome
    placed = {p: replace(qana, placement=p) for p in ("first", "all")}
    slow = {p: predict_ms(resolve(genome, SIZES), known) for p, genome in placed.items()}
    standard = predict_ms(resolve(MECHANISMS["mha"].genome, SIZES), known)
    assert slow["first"] < slow["all"]
    assert slow["first"] == pytest.approx(slow["all"] / 4 + standard * 3 / 4)


def test_scores_that_a_mean_does_not_read_take_no_time():
    known = units()

    def time(score, normaliser):
        return predict_ms(resolve(dot_product(score, normaliser), SIZES), known)

    assert time("qana", "uniform") == time("additive_attention_score", "uniform")
    assert time("scaled_dot_product", "uniform") < time("scaled_dot_product", "softmax")


def test_unmeasured_work_takes_the_median_time():
    known = units()
    without = {kind: unit for kind, unit in known["units"].items() if "qana" not in kind}
    genome = MECHANISMS["qana"].genome
    time = predict_ms(resolve(genome, SIZES), known | {"units": without})
    assert time == pytest.approx(
        predict_ms(resolve(genome, SIZES), known), rel=0.2
    )  # choices add nothing


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 0}, "version: "),
        ({"dim": 32}, "dim: measured with 32, asked with 16"),
        ({"tokens": 65}, "tokens: measured with"),
        ({"batch": 0}, "batch: "),
        ({"units": {}}, "no work takes any time"),
        ({"units": {"layer": -1.0}}, "units"),
        ({"units": {"layer": math.nan}}, "units"),
        ({"units": {"layer": "1"}}, "units"),
    ],
)
def test_invalid_or_other_calibration_is_refused(change, words):
    with pytest.raises(ConfigError, match=words) as caught:
        predict_ms(resolve(MECHANISMS["mha"].genome, SIZES), units() | change)
    assert "calibration" in str(caught.value)


def test_time_is_a_cost_of_a_search():
    found = costs_of(
        resolve(dot_product(), SIZES), CostContext(SIZES, False, False, units()), ["time_ms"]
    )
    assert found == {"time_ms": predict_ms(resolve(dot_product(), SIZES), units())}
    assert COSTS.get("time_ms").unit == "ms"
    with pytest.raises(ConfigError, match="is_causal: measured with"):
        costs_of(
            resolve(dot_product(), SIZES), CostContext(SIZES, False, True, units()), ["time_ms"]
        )
    with pytest.raises(ConfigError, match="calibration"):
        costs_of(resolve(dot_product(), SIZES), CostContext(SIZES, False, False, {}), ["time_ms"])


def test_causal_calibration_omits_unsafe_mechanisms(monkeypatch, calibration):
    monkeypatch.setattr("nas.costs.timing.calibration.designs", few)
    sizes, state = ModelSizes(8, 2, 1, 5), torch.random.get_rng_state()
    causal = ALIKE | {"precision": "bfloat16", "is_causal": True, "qkv_bias": True}
    found = calibrate(sizes, **causal, seconds=0.0)
    assert "convolutional_score" not in found["units"]
    assert predict_ms(resolve(MECHANISMS["mqa"].genome, sizes), found) > 0
    assert found["decode"]["softmax.call"] > 0
    assert not calibration["decode"], "decoding is causal"
    assert torch.equal(torch.random.get_rng_state(), state), "weights were drawn"


def test_calibrating_needs_heads_that_divide_the_width():
    with pytest.raises(NasError, match="heads that divide dim"):
        calibrate(ModelSizes(7, 2, 1, 5), **ALIKE)


@cache
def decode_units():
    """Return a calibration with equal unit times for every kind of decoding work."""
    kinds: set[str] = set()
    for genome in designs(SIZES.tokens):
        with suppress(NasError):
            kinds |= decoding_amounts(make_plan(genome, SIZES), SIZES).keys()
    return units() | {"is_causal": True, "decode": dict.fromkeys(kinds, 1e-3)}


def decoded(genome, context=4096):
    asked = CostContext(SIZES, False, True, decode_units(), context)
    return costs_of(asked.resolve(genome), asked, ["decode_ms"])["decode_ms"]


def test_decoding_time_grows_with_the_cache():
    mha = dot_product()
    assert decoded(mha, 64) < decoded(mha, 4096)
    assert decoded(dot_product(q_heads="1/2", kv_heads="1/2")) < decoded(mha)
    near = dot_product(window=3)
    assert decoded(near, 64) == decoded(near, 2**16) < decoded(mha, 2**16)
    linear = dot_product(normaliser="softmax_free")
    assert decoded(linear, 64) == decoded(linear, 2**16) < decoded(mha, 2**16)
    assert decoded(mha, None) == decoded(mha, SIZES.tokens)


def test_every_mechanism_of_the_causal_space_has_a_decoding_time():
    genomes = [genome for genome in samples("attention_causal", 60) if exists(genome)]
    assert len(genomes) > 40
    for genome in genomes:
        assert 0 < decoded(genome) < math.inf, genome


def test_decoding_time_needs_a_causal_mechanism_and_calibration(calibration):
    ahead = dot_product("convolutional_score")
    with pytest.raises(GenomeError, match="convolutional_score: reads later tokens"):
        decoded(ahead)
    with pytest.raises(ConfigError, match="is_causal: measured with False, asked with True"):
        costs_of(
            resolve(dot_product(), SIZES),
            CostContext(SIZES, False, False, calibration),
            ["decode_ms"],
        )
    untimed = CostContext(SIZES, False, True, decode_units() | {"decode": {}})
    with pytest.raises(ConfigError, match="decode: no step was timed"):
        costs_of(resolve(dot_product(), SIZES), untimed, ["decode_ms"])
