from __future__ import annotations

import pickle
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nas.compiler.kernels.runtime import past_keys
from nas.genome import Genome
from nas.genome.mechanisms import MECHANISMS
from nas.genome.primitives.positions import rotate
from nas.surgery.conversion import description
from nas.surgery.core import AttentionCore, HostSizes, scale_queries, split_mask
from tests.genomes import Build
from tests.surgery.helpers import qana

SIZES = HostSizes(dim=12, heads=4, kv_heads=2, width=6, has_bias=True)


def core(genome: Genome, sizes: HostSizes = SIZES) -> AttentionCore:
    """In float64 and randomised, so that no zero at the start hides a mistake."""
    torch.manual_seed(0)
    built = AttentionCore(genome, sizes).double()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return built


def streams(queries: int = 5, keys: int = 7) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(1)

    def draw(*shape: int) -> Tensor:
        return torch.randn(2, *shape, dtype=torch.float64)

    return draw(4, queries, 6), draw(2, keys, 6), draw(2, keys, 3), draw(queries, 12)


def test_grouped_heads_equal_torch() -> None:
    q, k, v, x = streams()
    out, weights = core(MECHANISMS["mha"].genome)(q, k, v, x)
    expected = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
    assert weights is not None
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


def test_softcap_bias_and_mask_act_between_score_and_softmax() -> None:
    q, k, v, x = streams()
    k, v = k.repeat_interleave(2, dim=1), v.repeat_interleave(2, dim=1)
    bias, mask = torch.randn(2, 1, 5, 7, dtype=torch.float64), torch.rand(5, 7) < 0.8
    mask[:, 0] = True
    out, _ = core(MECHANISMS["mha"].genome)(q, k, v, x, mask, bias, softcap=0.7)
    scores = 0.7 * torch.tanh(q @ k.transpose(-2, -1) / 6**0.5 / 0.7) + bias
    expected = scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)


def test_dropout_acts_on_the_weights() -> None:
    q, k, v, x = streams()
    built = core(MECHANISMS["mha"].genome)
    plain = built(q, k, v, x)[1]
    torch.manual_seed(5)
    out, weights = built(q, k, v, x, dropout=0.4)
    torch.manual_seed(5)
    expected = F.dropout(plain, 0.4)
    torch.testing.assert_close(weights, expected)
    torch.testing.assert_close(out, expected @ v.repeat_interleave(2, dim=1))
    torch.testing.assert_close(built.eval()(q, k, v, x, dropout=0.4)[1], plain)


@pytest.mark.parametrize("params", [{}, {"basis": 3}, {"mlp_scale": "sqrt", "hidden": 2}])
def test_rotated_scores_depend_on_distance_alone(params: dict[str, Any]) -> None:
    q, k, v, x = streams(7, 7)
    built = core(qana(**params), HostSizes(12, 4, 2, 6, is_rotated=True))

    def weights(start: int, turns_rows: bool = True) -> Tensor:
        def turn(rows: Tensor) -> Tensor:
            return rotate(rows, start) if turns_rows else rows

        found: Tensor = built(rotate(q, start), rotate(k, start), v, x, rotate=turn)[1]
        return found

    for start in (1, 13):
        torch.testing.assert_close(weights(start), weights(0), rtol=1e-10, atol=1e-10)
    assert (weights(13, turns_rows=False) - weights(0, turns_rows=False)).abs().max() > 1e-3


def test_rotated_qana_score_equals_the_equation() -> None:
    """Equation 3.1 for one query and key at a time, U and k both turned."""
    q, k, v, x = streams(5, 5)
    built = core(qana(hidden=2), HostSizes(12, 4, 2, 6, is_rotated=True))
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


def test_rope_stays_on_values_and_outputs(genome: Build) -> None:
    """A host turns queries and keys; what is said to be left out is what is left out."""
    q, k, v, x = streams(5, 5)
    q, k, sizes = rotate(q), rotate(k), HostSizes(24, 4, 2, 6, is_rotated=True)
    v = torch.cat([v, v.flip(-1)], dim=-1)
    kept = F.scaled_dot_product_attention(q, k, rotate(v), enable_gqa=True)
    plain = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    softmax, score = ("softmax", [0]), ("scaled_dot_product", ["q", "k"])
    summed = (score, softmax, ("weighted_sum", [1, "v"]))
    both = (("rope", ["q"]), ("rope", ["k"]), ("scaled_dot_product", [0, 1]), ("softmax", [2]))
    own = (("rope", ["v"]), ("rope", [0]), ("scaled_dot_product", ["q", 0]), ("softmax", [2]))
    asked = F.scaled_dot_product_attention(q, k, rotate(rotate(v)), enable_gqa=True)
    for found, expected, is_told in (
        (genome(score, softmax, ("rope", ["v"]), ("weighted_sum", [1, 2])), kept, False),
        (genome(*summed, ("rope", [2])), rotate(plain), False),
        (genome(*both, ("weighted_sum", [3, "v"])), plain, True),
        (genome(*both, ("rope", ["v"]), ("weighted_sum", [3, 4])), kept, True),
        # One stream, turned once as keys and twice as values.
        (genome(*own, ("weighted_sum", [3, 1]), has_wk=False, has_wv=False), asked, True),
    ):
        out, _ = core(found, sizes)(q, k, v, x)
        torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
        assert any("RoPE of queries" in words for words in description(found, sizes)) == is_told


def test_masks_have_the_meaning_of_torch() -> None:
    q, k, v, x = streams(5, 5)
    built = core(MECHANISMS["mha"].genome)
    causal = past_keys(q, k)
    added = torch.zeros(5, 5, dtype=torch.float64).masked_fill(~causal, -torch.inf)
    for given in (causal, added, added + torch.randn(5, 5, dtype=torch.float64)):
        out, _ = built(q, k, v, x, *split_mask(given))
        expected = F.scaled_dot_product_attention(q, k, v, attn_mask=given, enable_gqa=True)
        torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
    assert split_mask(None) == (None, None)


def test_scale_of_the_host_is_applied_to_queries() -> None:
    q, k, v, x = streams()
    out, _ = core(MECHANISMS["mha"].genome)(scale_queries(q, 0.9), k, v, x)
    expected = F.scaled_dot_product_attention(q, k, v, scale=0.9, enable_gqa=True)
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
    assert scale_queries(q, 6**-0.5) is q


def test_a_core_can_be_copied_and_pickled() -> None:
    given = streams()
    built = core(qana())
    for other in (deepcopy(built), pickle.loads(pickle.dumps(built))):
        torch.testing.assert_close(other(*given)[0], built(*given)[0])
