"""Unit times of operations, measured on this hardware, and predicted times of mechanisms.

    calibration = calibrate(sizes, batch=64, precision="float32", device="cpu", ...)
    predict_ms(resolve(genome, sizes), calibration)

A layer's time is the sum of its ``amounts``, each times the unit time of its kind. The unit times
minimise the squared relative errors over the mechanisms of ``designs``, each timed forward and
backward, and are non-negative. Under a causal mask the steps of a ``Decoder`` are also timed, for
one token after few and after many tokens; ``decode_ms`` predicts them from ``decoding_amounts``.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field, StrictBool, StrictInt, field_validator
from torch import nn

from nas.common.config import Frozen, parse_model
from nas.common.errors import ConfigError, NasError
from nas.common.processor import processor_name
from nas.compiler import Plan, ResolvedGenome, build_attention, make_plan, resolve
from nas.costs.context import CostContext, summed_layers
from nas.costs.decoding.memory import check_decodable, refused
from nas.costs.timing.decoding import decoding_amounts
from nas.costs.timing.design import designs
from nas.costs.timing.features import amounts
from nas.costs.timing.units import fitted, total
from nas.genome import Genome, ModelSizes

if TYPE_CHECKING:
    from nas.costs.timing.measuring import Passes

SECONDS: Final = 2.5  # duration of all rounds
FEWEST_NUMBERS: Final = 2**20  # elements of a timed pass; four times as many for networks
FEWEST_PAIRS: Final = 2**15  # pairs of query and key of a timed pass
CONTEXTS: Final = (256, 4096)  # cached tokens of the timed decoding steps
Time = Annotated[float, Field(ge=0.0, allow_inf_nan=False, strict=True)]


class Calibration(Frozen):
    """Measured unit times in milliseconds by kind of work, with model sizes and hardware.

    Attributes:
        units: unit times of a forward and backward pass.
        decode: unit times of a decoding step; empty if calls are not causal.
    """

    version: Literal[1] = 1
    hardware: str
    torch: str
    device: str
    precision: str
    batch: Annotated[StrictInt, Field(ge=1)]
    is_causal: StrictBool
    qkv_bias: StrictBool
    dim: StrictInt
    heads: StrictInt
    tokens: StrictInt
    units: dict[str, Time]
    decode: dict[str, Time] = {}

    @field_validator("units")
    @classmethod
    def _some_work_takes_time(cls, value: dict[str, float]) -> dict[str, float]:
        if not any(value.values()):
            raise ValueError("no work takes any time")
        return value

    def check(self, **expected: object) -> None:
        """Check fields of the calibration.

        Raises:
            ConfigError: a field differs from its expected value.
        """
        for name, value in expected.items():
            if getattr(self, name) != value:
                raise ConfigError(
                    f"calibration, {name}: measured with {getattr(self, name)}, asked with {value};"
                    " expected what nas.costs.timing.calibrate measured in this context."
                )


def calibrate(
    sizes: ModelSizes,
    *,
    batch: int,
    precision: str,
    device: str,
    is_causal: bool,
    qkv_bias: bool,
    seconds: float = SECONDS,
) -> dict[str, Any]:
    """Measure unit times at a model's sizes; returns a ``Calibration`` as JSON data.

    Args:
        precision: float32 or bfloat16, the precision of products as in training.
        seconds: time for rounds of measurement; at least two rounds run.

    Raises:
        NasError: no mechanism exists at these sizes.
    """
    import torch

    from nas.costs.timing.measuring import Passes, fastest, one_thread

    passes = Passes(sizes, batch, precision=precision, device=device, is_causal=is_causal)
    is_cuda = passes.device.type == "cuda"
    rows, works = [], []
    with one_thread(), torch.random.fork_rng(devices=[]):  # weights are drawn
        for plan, block in _blocks(sizes, is_causal=is_causal, qkv_bias=qkv_bias):
            count = batch if is_cuda else _count(plan, sizes, batch)
            row = amounts(plan, sizes, count, is_causal=is_causal)
            if row not in rows:
                rows.append(row)
                works.append(passes.of(block, count))
        times = fastest([partial(passes.seconds, work) for work in works], seconds)
        decode = _decode_units(passes, sizes, qkv_bias, seconds) if is_causal else {}
    return Calibration(
        hardware=torch.cuda.get_device_name(passes.device) if is_cuda else processor_name(),
        torch=str(torch.__version__),
        device=passes.device.type,
        precision=precision,
        batch=batch,
        is_causal=is_causal,
        qkv_bias=qkv_bias,
        dim=sizes.dim,
        heads=sizes.heads,
        tokens=sizes.tokens,
        units=fitted(rows, [1e3 * value for value in times]),
        decode=decode,
    ).model_dump()


def predict_ms(resolved: ResolvedGenome, calibration: Mapping[str, Any]) -> float:
    """Predicted milliseconds of a backbone's attention layers for one training batch.

    The time covers forward and backward. Layers outside the placement have standard attention.

    Raises:
        ConfigError: the calibration is invalid, or of other sizes.
        GenomeError, ViolationError: the mechanism does not exist.
    """
    parsed = parse_model(dict(calibration or {}), Calibration, "calibration")
    sizes = resolved.sizes
    parsed.check(dim=sizes.dim, heads=sizes.heads, tokens=sizes.tokens)

    def layer_ms(layer: ResolvedGenome) -> float:
        work = amounts(layer.plan, sizes, parsed.batch, is_causal=parsed.is_causal)
        return total(work, parsed.units)

    return summed_layers(resolved, layer_ms)


def time_ms(resolved: ResolvedGenome, context: CostContext) -> float:
    """The predicted time as a cost of a search.

    Raises:
        ConfigError: the context's calibration is missing, or of other sizes or calls.
        GenomeError, ViolationError: the mechanism does not exist.
    """
    predicted = predict_ms(resolved, context.calibration)
    parsed = parse_model(dict(context.calibration), Calibration, "calibration")
    parsed.check(is_causal=context.is_causal, qkv_bias=context.qkv_bias)
    return predicted


def decode_ms(resolved: ResolvedGenome, context: CostContext) -> float:
    """Predicted milliseconds of all attention layers to decode one token after the context.

    Raises:
        ConfigError: the calibration is missing, of other sizes, or of calls that are not causal.
        GenomeError, ViolationError: the mechanism does not exist, or cannot be decoded.
    """
    sizes = context.decoded
    parsed = parse_model(dict(context.calibration), Calibration, "calibration")
    parsed.check(dim=sizes.dim, heads=sizes.heads, qkv_bias=context.qkv_bias, is_causal=True)
    if not parsed.decode:
        raise ConfigError("calibration, decode: no step was timed; expected a new calibration.")

    def layer_ms(layer: ResolvedGenome) -> float:
        # A decoder runs the normal form that is valid for causal and other calls.
        plan = resolve(layer.genome, sizes, is_causal=None).plan
        check_decodable(plan)
        return total(decoding_amounts(plan, sizes), parsed.decode)

    return summed_layers(resolved, layer_ms)


def _decode_units(
    passes: Passes, sizes: ModelSizes, qkv_bias: bool, seconds: float
) -> dict[str, float]:
    """The unit times of a decoding step, from all designs that can be decoded."""
    from nas.costs.timing.measuring import fastest

    rows, timers = [], []
    for plan, block in _blocks(sizes, is_causal=True, qkv_bias=qkv_bias):
        if not refused(plan):
            for tokens in CONTEXTS:
                rows.append(decoding_amounts(plan, sizes._replace(tokens=tokens)))
                timers.append(partial(passes.decoding_seconds, block, tokens))
    return fitted(rows, [1e3 * value for value in fastest(timers, seconds)])


def _blocks(
    sizes: ModelSizes, *, is_causal: bool, qkv_bias: bool
) -> Iterator[tuple[Plan, nn.Module]]:
    """The plans and blocks of the designs that exist at these sizes, without duplicates."""
    genomes: set[Genome] = set()
    for genome in designs(sizes.tokens):
        try:
            plan = make_plan(genome, sizes)
            if plan.genome in genomes or (is_causal and plan.unsafe):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # designs that never train are timed too
                block = build_attention(plan.genome, sizes.dim, sizes.heads, qkv_bias=qkv_bias)
        except NasError:
            continue
        genomes.add(plan.genome)
        yield plan, block
    if not genomes:
        raise NasError(f"no mechanism exists at {sizes}; expected heads that divide dim.")


def _count(plan: Plan, sizes: ModelSizes, batch: int) -> int:
    """The number of sequences with which a layer is timed: the batch, or fewer for slow layers.

    Time is proportional to this number while the same kernels run, which depends on the number of
    pairs and of hidden units over pairs.
    """
    numbers, most, pairs = 0, 1, 0
    for step in plan.steps:
        size = plan.call_sizes(step, sizes.dim, sizes.heads, sizes.tokens)
        passes = step.primitive.passes(size, step.params)
        rows = sizes.tokens if step.is_paired else size.width
        numbers += size.heads * sizes.tokens * rows * passes
        most, pairs = max(most, passes), max(pairs, size.heads * size.pairs)
    least = FEWEST_NUMBERS if most == 1 else 4 * FEWEST_NUMBERS
    return min(batch, 1 + max(least // numbers, FEWEST_PAIRS // pairs))
