"""The test whether a mechanism keeps the outputs of a model whose attention it replaces.

The test compares the untrained mechanism with softmax(q·kᵀ / sqrt(w))·v on random tensors in
float64. The cases have a mask or no mask, and as many keys as queries or more keys.
"""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional as F

from nas.common.errors import GenomeError
from nas.compiler import formula, make_plan
from nas.genome import Genome, Node, ParamValue, Projections
from nas.genome.primitives import check_vocabulary, get
from nas.genome.primitives.domains import Choice
from nas.surgery.core import AttentionCore, HostSizes

TOLERANCE: Final = 1e-9
_SIZES: Final = HostSizes(dim=12, heads=4, kv_heads=2, width=6, has_bias=True)
_SEED: Final = 0
NEUTRAL: Final = ("zero_out", "identity")  # initial values with which a primitive does nothing


def starting_at(genome: Genome, init: str | None = None) -> Genome:
    """Return the genome with the value ``init`` for every parameter of this name that has it.

    The value ``gate`` starts with a closed gate (a factor): the one that opens over training if the
    genome has one, else a learned one. None stands for the values of ``NEUTRAL``. A
    primitive that has no such value keeps its own.

    Raises:
        GenomeError: a primitive or parameter does not exist, or all parameters ``init`` of the
            genome lack the value.
    """
    genome = check_vocabulary(genome)
    wanted = NEUTRAL if init is None else (init,)
    chosen = [next((v for v in wanted if v in _inits(node)), None) for node in genome.nodes]
    if init is not None and not any(chosen):
        chosen = [init if _inits(node) else None for node in genome.nodes]  # the error names one
    nodes = tuple(
        node if value is None else _with_init(node, value)
        for node, value in zip(genome.nodes, chosen, strict=True)
    )
    return check_vocabulary(replace(genome, nodes=nodes), f"init={init!r}")


def _inits(node: Node) -> tuple[str, ...]:
    """Return the values of a primitive's parameter ``init``; none without this parameter."""
    init = get(node.op).parameters.get("init")
    return init.values if isinstance(init, Choice) else ()


def _with_init(node: Node, init: str) -> Node:
    primitive = get(node.op)
    changed: dict[str, ParamValue] = {"init": init}
    gate = primitive.full(node.param_dict()).get("gate")
    if init == "gate" and gate == "none":
        changed["gate"] = "learned"
    if init == "gate" and gate == "warmup":
        changed["init"] = "random"  # the gate that opens over training starts closed
    return replace(node, params=tuple(sorted((node.param_dict() | changed).items())))


def check_preserving(genome: Genome) -> None:
    """Raise GenomeError unless the untrained mechanism equals the attention that it replaces.

    The model keeps its own projections, so the genome must have the projections of multi-head
    attention and no window.
    """
    form = make_plan(genome).genome
    default = asdict(Projections())
    other = {name: v for name, v in asdict(form.projections).items() if v != default[name]}
    if form.visibility.window is not None:
        other["window"] = form.visibility.window
    if other:
        raise GenomeError(
            f"the mechanism has {', '.join(f'{name}: {value}' for name, value in other.items())}; "
            "expected the projections of multi-head attention (q, k and v projected and read, all "
            "heads, concatenated) and no window, since the model keeps its own; preserve=False "
            "converts it."
        )
    largest = difference(genome)
    if largest > TOLERANCE:
        reason = f"differs from softmax attention by {largest:.2g}"
        if math.isinf(largest):
            reason = "cannot replace softmax attention, where keys and queries differ in length"
        raise GenomeError(
            f"{formula(genome)} {reason} at its start, so it would change the model's outputs; "
            "expected one that starts equal to it, such as mha or qana; preserve=False takes it as "
            "it is."
        )


def difference(genome: Genome) -> float:
    """Return a mechanism's largest difference from softmax attention before training.

    The difference is infinite if the mechanism needs as many keys as queries.

    Raises:
        GenomeError, ViolationError: the mechanism does not exist or does not type-check.
    """
    params = (get(node.op).full(node.param_dict()) for node in genome.nodes)
    integers = [v for values in params for v in values.values() if type(v) is int]
    more_keys = 8 + max(integers, default=0)  # so that filters of the k largest scores drop keys
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(_SEED)  # CUDA generators stay as they are
        core = AttentionCore(genome, _SIZES).double().eval()
        cases = [(n, is_masked) for n in (5, 7, more_keys) for is_masked in (False, True)]
        try:
            return max(_difference(core, *case) for case in cases)
        except (RuntimeError, TypeError, ValueError):
            return math.inf


def _difference(core: AttentionCore, keys: int, is_masked: bool) -> float:
    """Return the largest difference from softmax attention for 5 queries and ``keys`` keys."""

    def draw(*shape: int) -> Tensor:
        return torch.randn(2, *shape, dtype=torch.float64)

    q, x = draw(_SIZES.heads, 5, _SIZES.width), draw(5, _SIZES.dim)
    k, v = (draw(_SIZES.kv_heads, keys, _SIZES.width) for _ in range(2))
    mask = None
    if is_masked:
        mask = torch.rand(2, 1, 5, keys) < 0.7
        mask[..., 0] = True
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    return float((core(q, k, v, x, mask)[0] - expected).abs().max())
