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
from nas.genome import Genome, Node, Projections
from nas.genome.primitives import check_vocabulary, full_params, get
from nas.genome.primitives.domains import Choice
from nas.surgery.core import AttentionCore, HostSizes

TOLERANCE: Final = 1e-9
NEUTRAL: Final = ("zero_out", "identity")  # values of ``init`` with which a primitive does nothing
_SIZES: Final = HostSizes(dim=12, heads=4, kv_heads=2, width=6, has_bias=True)


def preserving(genome: Genome) -> Genome:
    """Return a genome that equals softmax attention before training.

    The result is the genome as it is written, or with a value of ``NEUTRAL`` for each parameter
    ``init`` that has one (QANA: Vermillion 2025, section 4, "function-preserving"). GenomeError is
    raised if neither is equal, or if the genome has a window or other projections than multi-head
    attention, whose projections the model keeps.
    """
    form = make_plan(genome).genome
    default = asdict(Projections())
    other = {name: v for name, v in asdict(form.projections).items() if v != default[name]}
    if form.visibility.window is not None:
        other["window"] = form.visibility.window
    if other:
        raise GenomeError(
            f"the mechanism has {', '.join(f'{name}: {value}' for name, value in other.items())}; "
            "expected the projections of multi-head attention and no window, since the model keeps "
            "its own; preserve=False converts it."
        )
    if difference(genome) <= TOLERANCE:
        return genome
    nodes = tuple(_neutral(node) for node in check_vocabulary(genome).nodes)
    genome = replace(genome, nodes=nodes)
    if (largest := difference(genome)) <= TOLERANCE:
        return genome
    reason = f"differs from softmax attention by {largest:.2g}"
    if math.isinf(largest):
        reason = "cannot replace softmax attention, where keys and queries differ in length"
    raise GenomeError(
        f"{formula(genome)} {reason} at its start, so it would change the model's outputs; "
        "expected one that starts equal to it, such as mha or qana; preserve=False takes it as it "
        "is."
    )


def _neutral(node: Node) -> Node:
    init = get(node.op).parameters.get("init")
    value = next((v for v in NEUTRAL if isinstance(init, Choice) and v in init.values), None)
    if value is None:
        return node
    return replace(node, params=tuple(sorted((dict(node.params) | {"init": value}).items())))


def difference(genome: Genome) -> float:
    """Return the largest initial difference from softmax attention; infinity if a call fails."""
    params = (full_params(node) for node in genome.nodes)
    integers = [v for values in params for v in values.values() if type(v) is int]
    more_keys = 8 + max(integers, default=0)  # so that filters of the k largest scores drop keys
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(0)  # CUDA generators stay as they are
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
