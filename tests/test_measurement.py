"""Measuring: what is asked is measured, in turn, and what does not fit ends nothing else."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from nas.errors import DeviceError, GenomeError, NasError
from nas.genome import Genome
from nas.measurement import PASSES, Done, Reading, Readings, check_device, measure
from nas.measurement.child import MeasuringProcess
from nas.measurement.passes import Case, _peak_of_processor, milliseconds, peak_bytes
from nas.mechanisms import MECHANISMS
from tests.benchmarks.sqa import is_ordered, measure_speeds, outside

MHA = MECHANISMS["mha"].genome
FAR_TOO_LONG = 2**40  # the input alone would take 32 TiB


@pytest.fixture(scope="module")
def child() -> Iterator[MeasuringProcess]:
    with MeasuringProcess() as process:
        yield process


@pytest.fixture(scope="module")
def told() -> list[Done]:
    return []


@pytest.fixture(scope="module")
def readings(told: list[Done]) -> Readings:
    lengths = (16, FAR_TOO_LONG)
    return measure({"mha": MHA}, lengths, dim=8, heads=1, rounds=2, listener=told.append)


def case(genome: Genome, tokens: int, **more: Any) -> Case:
    return Case(genome, 32, 4, tokens, **{"direction": "forward", **more})


def test_a_reading_is_the_fastest_round_and_how_far_the_median_was() -> None:
    reading = Reading((3.0, 2.0, 2.5), 100)
    assert reading.ms == 2.0
    assert reading.spread == pytest.approx(0.25)


def test_every_pass_is_measured_in_every_round(readings: Readings) -> None:
    for direction in PASSES:
        reading = readings["mha", 16, direction]
        assert reading is not None
        assert len(reading.samples_ms) == 2
        assert all(ms > 0 for ms in reading.samples_ms)
        assert reading.peak_memory_bytes > 0


def test_what_does_not_fit_is_told_and_the_rest_is_measured(readings: Readings) -> None:
    assert readings["mha", FAR_TOO_LONG, "forward"] is None
    assert readings["mha", FAR_TOO_LONG, "forward_backward"] is None
    assert readings["mha", 16, "forward"] is not None


def test_rounds_are_interleaved_after_one_that_finds_out_what_fits(
    readings: Readings, told: list[Done]
) -> None:
    keys = [("mha", n, d) for n in (16, FAR_TOO_LONG) for d in PASSES]
    assert [done.key for done in told] == 3 * keys
    assert [done.round for done in told] == [0] * 4 + [1] * 4 + [2] * 4
    assert [done.number for done in told] == list(range(1, 13))
    assert {done.total for done in told} == {12}


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("direction", PASSES)
def test_every_mechanism_can_be_measured(name: str, direction: Any) -> None:
    asked = Case(MECHANISMS[name].genome, 32, 8, 8, direction)
    assert milliseconds(asked) > 0
    assert peak_bytes(asked) > 0


def test_peak_memory_is_what_is_held_at_one_time() -> None:
    def work() -> None:
        first = torch.empty(1000)
        second = torch.empty(500)
        del first
        third = torch.empty(700)
        del second, third

    assert _peak_of_processor(work) == 4 * 1500


def test_peak_memory_holds_the_result_and_grows_with_the_length() -> None:
    short, long = (peak_bytes(case(MHA, n)) for n in (256, 512))
    assert short >= 4 * 256 * 32
    assert long > 1.9 * short


def test_a_backward_pass_holds_more_than_a_forward_pass() -> None:
    forward, both = (peak_bytes(case(MHA, 128, direction=d)) for d in PASSES)
    assert both > forward


def test_causality_reaches_the_block(child: MeasuringProcess) -> None:
    """Under it a mask is made, which takes memory."""
    plain, causal = (child.ask("peak_bytes", case(MHA, 64, is_causal=c)) for c in (False, True))
    assert plain is not None
    assert causal is not None
    assert causal > plain


def test_the_child_measures_what_we_would(child: MeasuringProcess) -> None:
    asked = case(MHA, 100)
    assert child.ask("peak_bytes", asked) == peak_bytes(asked)


def test_a_mechanism_that_does_not_exist_at_a_size_says_so(child: MeasuringProcess) -> None:
    with pytest.raises(NasError, match=r"8 tokens: .*heads divides dim"):
        child.ask("milliseconds", Case(MHA, 30, 4, 8, "forward"))


@pytest.fixture
def kill(child: MeasuringProcess) -> Callable[[signal.Signals], None]:
    def end(number: signal.Signals) -> None:
        child.ask("milliseconds", case(MHA, 8))
        assert child._child is not None
        os.kill(child._child.pid, number)

    return end


def test_a_child_that_the_kernel_ended_is_replaced(
    child: MeasuringProcess, kill: Callable[[signal.Signals], None]
) -> None:
    kill(signal.SIGKILL)
    assert child.ask("milliseconds", case(MHA, 8)) is None
    assert child.ask("milliseconds", case(MHA, 8)) is not None


def test_a_child_that_ended_otherwise_is_a_fault(
    child: MeasuringProcess, kill: Callable[[signal.Signals], None]
) -> None:
    kill(signal.SIGTERM)
    with pytest.raises(RuntimeError, match="status -15"):
        child.ask("milliseconds", case(MHA, 8))


def test_a_mechanism_that_sees_later_tokens_is_not_measured_causally(
    genome: Callable[..., Genome],
) -> None:
    found = genome(("convolutional_score", "qk"), ("softmax", [0]), ("weighted_sum", [1, "v"]))
    with pytest.raises(GenomeError, match="conv: convolutional_score sees later tokens"):
        measure({"conv": found}, [8], dim=8, heads=2, is_causal=True)


@pytest.mark.parametrize("name", ["tpu", "cuda:99", "", "cpu:0"])
def test_a_device_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(DeviceError, match=f"device '{name}'.*expected cpu"):
        check_device(name)


@pytest.mark.gpu
def test_measuring_on_a_gpu() -> None:
    found = measure({"mha": MHA}, [256, 512], dim=64, heads=4, rounds=2, device="cuda")
    short, long = (found["mha", n, "forward"] for n in (256, 512))
    assert short is not None
    assert long is not None
    assert short.peak_memory_bytes < long.peak_memory_bytes


@pytest.mark.slow
def test_fewer_query_heads_take_less_time_as_macs_predict() -> None:
    """The central claim of Sparse Query Attention, on one thread of a processor."""
    for tokens, speeds in measure_speeds((2_048, 4_096), rounds=7).items():
        assert is_ordered(speeds), (tokens, speeds)
        assert not outside(speeds), (tokens, speeds)
