"""Unit times of the work in mechanisms, measured on this hardware, and the times they predict.

    calibration = calibrate(sizes, batch=64, precision="float32", device="cpu", ...)
    predict_ms(resolve(genome, sizes), calibration)

A layer's time is the sum of its ``amounts``, each times the unit of its kind. The units are the
non-negative least squares of the relative errors over the mechanisms of ``designs``, each timed
forward and backward. Under a causal mask the steps of a ``Decoder`` are timed as well, for one
token after few and after many others, and ``decode_ms`` predicts them from ``decoding_amounts``.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field, StrictBool, StrictInt, field_validator

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
    from collections.abc import Iterator

    from torch import nn

    from nas.costs.timing.measuring import Passes

SECONDS: Final = 2.5  # of rounds
FEWEST_NUMBERS: Final = 2**20  # that a timed pass touches, and four times that in networks
FEWEST_PAIRS: Final = 2**15
CONTEXTS: Final = (256, 4096)  # tokens after which steps of decoding are timed
Time = Annotated[float, Field(ge=0.0, allow_inf_nan=False, strict=True)]


class Calibration(Frozen):
    """What ``calibrate`` measured: milliseconds of a unit of each kind of work, and where.

    Attributes:
        decode: the units of a token that is decoded; empty where calls are not causal.
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
        """Raise if the units were not measured for this model and machine.

        Raises:
            ConfigError: it was not measured there.
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
    """Measure the units at a model's sizes; a ``Calibration`` as JSON data.

    Args:
        precision: float32 or bfloat16, the products' as in a training.
        seconds: for rounds of measurement, of which there are two at least.

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
    """Milliseconds of a backbone's attention layers, forward and backward, of one training batch.

    Layers that the placement leaves out hold standard attention.

    Raises:
        ConfigError: the calibration is none, or of other sizes.
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
    """Milliseconds of all attention layers for one token of one sequence, after the context.

    Raises:
        ConfigError: the context's calibration is missing, of other sizes, or of calls that are not
            causal.
        GenomeError, ViolationError: the mechanism does not exist, or cannot be decoded.
    """
    sizes = context.decoded
    parsed = parse_model(dict(context.calibration), Calibration, "calibration")
    parsed.check(dim=sizes.dim, heads=sizes.heads, qkv_bias=context.qkv_bias, is_causal=True)
    if not parsed.decode:
        raise ConfigError("calibration, decode: no step was timed; expected a new calibration.")

    def layer_ms(layer: ResolvedGenome) -> float:
        # A decoder runs the form that is right for causal and other calls.
        plan = resolve(layer.genome, sizes, is_causal=None).plan
        check_decodable(plan)
        return total(decoding_amounts(plan, sizes), parsed.decode)

    return summed_layers(resolved, layer_ms)


def _decode_units(
    passes: Passes, sizes: ModelSizes, qkv_bias: bool, seconds: float
) -> dict[str, float]:
    """The units of a step of decoding, from all designs that can be decoded."""
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
    """The designs that exist at these sizes, each once, ready to run."""
    genomes: set[Genome] = set()
    for genome in designs(sizes.tokens):
        try:
            plan = make_plan(genome, sizes)
            if plan.genome in genomes or (is_causal and plan.unsafe):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # one that never trains is timed as well
                block = build_attention(plan.genome, sizes.dim, sizes.heads, qkv_bias=qkv_bias)
        except NasError:
            continue
        genomes.add(plan.genome)
        yield plan, block
    if not genomes:
        raise NasError(f"no mechanism exists at {sizes}; expected heads that divide dim.")


def _count(plan: Plan, sizes: ModelSizes, batch: int) -> int:
    """With how many sequences a layer is timed: all, or fewer of those that take long.

    Time is in proportion to them as long as the kernels are the same, which depends on how many
    pairs there are, and how many units of networks over pairs.
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
