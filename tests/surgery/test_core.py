from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nas.genome import Genome
from nas.genome.primitives.positions import rotate
from nas.store.sources import load_genome
from nas.surgery.core import AttentionCore, HostSizes
from tests.genomes import build
from tests.tensors import add_noise


def core(genome: Genome, sizes: HostSizes) -> AttentionCore:
    """Return a core in float64 with random weights, so that no zero hides a mistake."""
    torch.manual_seed(0)
    built = AttentionCore(genome, sizes).double()
    add_noise(built, 0.3)
    return built


def streams() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return queries, keys, values and tokens of 4 query heads and 2 key heads."""
    torch.manual_seed(1)

    def draw(*shape: int) -> Tensor:
        return torch.randn(2, *shape, dtype=torch.float64)

    return draw(4, 5, 6), draw(2, 5, 6), draw(2, 5, 3), draw(5, 12)


def test_rotated_qana_score_equals_the_equation() -> None:
    """Equation 3.1 for one query and key at a time; U and k are both rotated."""
    q, k, v, x = streams()
    built = core(load_genome("qana:hidden=2"), HostSizes(12, 4, 2, 6, is_rotated=True))
    module: Any = built.get_submodule("qana_0")
    q, k = rotate(q), rotate(k)
    rows, out, bias, shift = module.units(x)
    rows, wide = rotate(rows), k.repeat_interleave(2, dim=1)
    scores = torch.zeros(2, 4, 5, 5, dtype=torch.float64)
    for i in range(5):
        for j in range(5):
            skip = (q[:, :, i] * wide[:, :, j]).sum(-1) / 6**0.5
            inner = (rows[:, :, i] * wide[:, :, j, None]).sum(-1) + bias[:, :, i]
            scores[:, :, i, j] = skip + (out[:, :, i] * F.gelu(inner)).sum(-1) + shift[:, :, i, 0]
    found = built(q, k, v, x, rotate=rotate)[1]
    torch.testing.assert_close(found, scores.softmax(-1), rtol=1e-12, atol=1e-12)


def test_rope_stays_on_values_and_outputs() -> None:
    """The host rotates queries and keys, whose RoPE is left out."""
    q, k, v, x = streams()
    q, k, sizes = rotate(q), rotate(k), HostSizes(24, 4, 2, 6, is_rotated=True)
    v = torch.cat([v, v.flip(-1)], dim=-1)
    kept = F.scaled_dot_product_attention(q, k, rotate(v), enable_gqa=True)
    plain = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    softmax, score = ("softmax", [0]), ("scaled_dot_product", ["q", "k"])
    summed = (score, softmax, ("weighted_sum", [1, "v"]))
    both = (("rope", ["q"]), ("rope", ["k"]), ("scaled_dot_product", [0, 1]), ("softmax", [2]))
    own = (("rope", ["v"]), ("rope", [0]), ("scaled_dot_product", ["q", 0]), ("softmax", [2]))
    asked = F.scaled_dot_product_attention(q, k, rotate(rotate(v)), enable_gqa=True)
    for found, expected in (
        (build(score, softmax, ("rope", ["v"]), ("weighted_sum", [1, 2])), kept),
        (build(*summed, ("rope", [2])), rotate(plain)),
        (build(*both, ("weighted_sum", [3, "v"])), plain),
        (build(*both, ("rope", ["v"]), ("weighted_sum", [3, 4])), kept),
        # One stream, turned once as keys and twice as values.
        (build(*own, ("weighted_sum", [3, 1]), has_wk=False, has_wv=False), asked),
    ):
        out, _ = core(found, sizes)(q, k, v, x)
        torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
