"""Unit times of operations, measured on this hardware with small mechanisms.

A forward and a backward pass of each mechanism of ``designs`` is timed; on a GPU as a CUDA graph,
as in a training. A mechanism that cannot be captured is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import Any, Final

import torch
from torch import nn

from nas.common.errors import NasError
from nas.common.system import processor_name
from nas.compiler import Plan, build_attention, resolve
from nas.costs import Calibration
from nas.costs.operations import ELEMENTWISE
from nas.costs.profile import profile
from nas.costs.timing.measuring import Passes, in_turns, one_thread, seconds_of
from nas.costs.timing.work import amounts
from nas.genome import Genome, ModelSizes
from nas.genome.primitives import Kind, Primitive, Signature, get, names

MORE_ROUNDS_SECONDS: Final = 2.5  # after two rounds, no further round starts later
FEWEST_NUMBERS: Final = 2**20  # elements of a timed pass; four times as many for networks
_RIDGE: Final = 0.02  # penalty of unit times, relative to the errors
FEWEST_PAIRS: Final = 2**15  # pairs of query and key of a timed pass

Call = tuple[str, list[Any], dict[str, Any]]
Params = dict[str, Any]

_SCORES: Final[tuple[Call, ...]] = (
    ("scaled_dot_product", ["q", "k"], {}),
    ("bilinear", ["q", "k"], {}),
)
_NORMALISERS: Final = ("softmax", "uniform", "softmax_free", "relu_squared")
# Few projections, so that the timed primitive dominates.
_FEW: Final = {"has_wq": False, "has_wv": False, "has_wo": False}
_NONE: Final = _FEW | {"has_wk": False}
_WIDE: Final = _NONE | {"raw": "shared", "merge": "sum"}
_PROJECTIONS: Final[tuple[Params, ...]] = (
    *({}, {"has_wo": False}, _FEW, _NONE, _WIDE, {"merge": "sum"}),
    *({"qk_dim": "1/2"}, {"kv_heads": "one"}),
    *({"q_heads": share, "kv_heads": share} for share in ("1/2", "one")),
)


def calibrate(
    sizes: ModelSizes,
    *,
    batch: int,
    precision: str,
    device: str,
    is_causal: bool,
    qkv_bias: bool,
    seconds: float = MORE_ROUNDS_SECONDS,
) -> dict[str, Any]:
    """Measure the unit times of operations on this machine; return a ``Calibration`` as JSON data.

    ``precision`` is that of matrix products in training. After ``seconds`` no further round of
    measurement starts, but two rounds always run. NasError is raised if no mechanism exists at
    these sizes, RuntimeError if none can be captured on this GPU.
    """
    passes = Passes(sizes, batch, precision=precision, device=device, is_causal=is_causal)
    is_cuda = passes.device.type == "cuda"
    rows, works, fault = [], [], None
    with one_thread(), torch.random.fork_rng(devices=[]):  # weights are drawn
        for plan, block in _blocks(sizes, is_causal=is_causal, qkv_bias=qkv_bias):
            count = batch if is_cuda else _count(plan, sizes, batch)
            row = amounts(plan, sizes, count, is_causal=is_causal)
            if row in rows:
                continue
            try:
                works.append(passes.of(block, count))
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:  # its trainings run eagerly too
                fault = error
                continue
            rows.append(row)
        if not rows and fault is not None:
            raise fault
        timers = [partial(seconds_of, work, passes.device) for work in works]
        times = [min(each) for each in in_turns(timers, seconds)]
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
        units=_fitted(rows, [1e3 * value for value in times]),
    ).model_dump()


def _blocks(
    sizes: ModelSizes, *, is_causal: bool, qkv_bias: bool
) -> Iterator[tuple[Plan, nn.Module]]:
    """Yield the designs that exist at these sizes."""
    genomes: set[Genome] = set()
    for genome in designs(sizes.tokens):
        try:
            plan = resolve(genome, sizes, is_causal=None).plan
            if plan.genome in genomes or (is_causal and plan.unsafe):
                continue
            block = build_attention(plan.genome, sizes.dim, sizes.heads, qkv_bias=qkv_bias)
        except NasError:
            continue
        genomes.add(plan.genome)
        yield plan, block
    if not genomes:
        raise NasError(f"no mechanism exists at {sizes}; expected heads that divide dim.")


def _count(plan: Plan, sizes: ModelSizes, batch: int) -> int:
    """Return how many sequences make a layer run the kernels of the whole batch."""
    numbers, most, pairs = 0, 1.0, 0
    for step in plan.steps:
        size = plan.call_sizes(step, sizes)
        results = size.heads * size.tokens * (size.tokens if step.is_paired else size.width or 1)
        elements = max(results, profile(plan, step, sizes)[ELEMENTWISE])
        numbers += elements
        most, pairs = max(most, elements / results), max(pairs, size.heads * size.tokens**2)
    least = FEWEST_NUMBERS if most < 4 else 4 * FEWEST_NUMBERS
    return min(batch, 1 + max(least // numbers, FEWEST_PAIRS // pairs))


def _fitted(rows: Sequence[Mapping[str, float]], times: Sequence[float]) -> dict[str, float]:
    """Fit the unit time of each kind of work: non-negative ridge regression of relative errors."""
    import numpy as np
    from scipy.optimize import nnls  # type: ignore[import-untyped]

    kinds = sorted({kind for row in rows for kind, amount in row.items() if amount})
    table = np.array([[row.get(kind, 0.0) for kind in kinds] for row in rows])
    relative = table / np.array(times)[:, None]
    scale = relative.max(axis=0)
    ridge = _RIDGE * np.eye(len(kinds))
    target = np.concatenate([np.ones(len(rows)), np.zeros(len(kinds))])
    units = nnls(np.vstack([relative / scale, ridge]), target)[0] / scale
    return {kind: float(unit) for kind, unit in zip(kinds, units, strict=True)}


def designs(tokens: int) -> Iterator[Genome]:
    """Yield the mechanisms to time: small ones that together contain all primitives and kernels.

    Primitives of plug-ins are included. Parameters are varied one at a time. Some of the mechanisms
    may not exist at a model's sizes.
    """
    window = {"window": max(1, tokens // 4)}
    for projections in _PROJECTIONS:
        for normaliser in _NORMALISERS:
            yield _attention([_SCORES[0], (normaliser, [0], {})], projections)
    for projections in (_FEW, _WIDE):
        for normaliser in (*_NORMALISERS, "sigmoid", "sparsemax"):
            yield _attention([_SCORES[0], (normaliser, [0], {})], projections, window)
    for gates in ("forget_gate", "feature_gate"):
        nodes: list[Call] = [(gates, ["k"], {}), ("gated_product", ["q", "k", 0], {})]
        yield _attention([*nodes, ("softmax_free", [1], {})], _FEW, window)
    for name in names():
        primitive = get(name)
        for signature in primitive.signatures:
            for number, params in enumerate(_variants(primitive)):
                made = [*_around(primitive, signature, params, is_first=number == 0)]
                yield from made
                if number == 0:  # fewer elements, to separate their time from that of a call
                    one = replace(made[0].projections, q_heads="one", kv_heads="one")
                    one = replace(one, has_wq=True, has_wk=True, has_wv=True)
                    yield replace(made[0], projections=one)


def _variants(primitive: Primitive) -> Iterator[Params]:
    """Yield the default parameters, then parameters in which one value differs from the default."""
    yield {}
    for name, domain in primitive.parameters.items():
        values: tuple[Any, ...] = getattr(domain, "values", ())
        if isinstance(domain.default, bool):
            values = (not domain.default,)
        elif hasattr(domain, "low") and isinstance(domain.default, int | None):
            values = (max(domain.low, (domain.default or 8) // 2),)
        yield from ({name: value} for value in values if value != domain.default)


def _around(
    primitive: Primitive, signature: Signature, params: Params, *, is_first: bool
) -> Iterator[Genome]:
    """Yield mechanisms that contain a call of a primitive, more of them if ``is_first``."""
    kinds, result = [port.kind for port in signature.inputs], signature.output.kind
    streams, made = cycle("v" if result is Kind.TOKENS else "qkv"), dict[Kind, int]()
    nodes: list[Call] = []
    inputs: list[Any] = []
    for kind in kinds:
        if kind is not Kind.TOKENS and kind not in made:
            nodes += _OPERANDS[kind](len(nodes))
            made[kind] = len(nodes) - 1
        inputs.append(next(streams) if kind is Kind.TOKENS else made[kind])
    nodes.append((primitive.name, inputs, params))
    last, is_of_tokens = len(nodes) - 1, set(kinds) == {Kind.TOKENS}
    if result.is_gates:
        nodes.append(("scan", ["v", last], {}))
        yield _attention([*nodes, ("uniform", ["v"], {})], values=last + 1)
    elif result is Kind.SCORES:
        for normaliser in ("softmax", "softmax_free"):
            yield _attention([*nodes, (normaliser, [last], {})])
        if is_first and is_of_tokens:
            yield _attention([*nodes, ("softmax", [0], {})], _WIDE)
            # Few features, so that the linear kernel does not compute all pairs.
            yield _attention([*nodes, ("softmax_free", [0], {})], {"qk_dim": "1/4"})
    elif result is Kind.WEIGHTS:
        yield _attention(nodes)
    else:
        mean: Call = ("uniform", ["v"], {})
        yield _attention([*nodes, mean], _NONE if is_of_tokens else _FEW, values=last)
        if is_first and is_of_tokens:
            yield _attention([*nodes, mean], _WIDE, values=last)


# Nodes that compute an operand of a kind, given the number of nodes before them.
_OPERANDS: Final[dict[Kind, Callable[[int], list[Call]]]] = {
    Kind.GATES: lambda count: [("forget_gate", ["k"], {})],
    Kind.FEATURE_GATES: lambda count: [("feature_gate", ["k"], {})],
    Kind.SCORES: lambda count: [_SCORES[0]],
    Kind.WEIGHTS: lambda count: [_SCORES[0], ("softmax", [count], {})],
}


def _attention(
    nodes: list[Call], projections: Params = _FEW, mask: Params | None = None, values: Any = "v"
) -> Genome:
    """Return the genome that sums ``values`` with the weights that the last node computes."""
    calls = [*nodes, ("weighted_sum", [len(nodes) - 1, values], {})]
    graph = [{"op": op, "inputs": inputs, "params": params} for op, inputs, params in calls]
    return Genome.from_dict(
        {"graph_def": graph, "proj_config": projections, "visibility": mask or {}}
    )
