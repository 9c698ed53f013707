"""Swapped models of timm: the same outputs, fused or not, with every part that a block may have."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from timm.layers import Attention
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from nas.errors import NasError
from nas.surgery import swap_attention

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def both(model: nn.Module, *given: Any, **options: Any) -> list[Tensor]:
    """The outputs of the model and of a swapped copy, with the same random numbers."""
    other = deepcopy(model)
    assert swap_attention(other, "qana")
    results = []
    for one in (other, model):
        torch.manual_seed(1)
        results.append(one(*given, **options))
    return results


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(
    "options",
    [{}, {"qkv_bias": False}, {"qk_norm": True}, {"attn_drop_rate": 0.3, "proj_drop_rate": 0.1}],
    ids=str,
)
def test_a_vision_transformer_keeps_its_outputs(
    options: dict[str, Any], fused: bool, train: bool
) -> None:
    torch.manual_seed(0)
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4}
    model = VisionTransformer(**sizes, num_classes=5, **options).train(train)
    for block in model.blocks:
        block.attn.fused_attn = fused
        nn.init.normal_(block.attn.qkv.weight, std=0.3)  # so that attention is far from uniform
    torch.testing.assert_close(*both(model, torch.randn(2, 3, 32, 32)), **TOLERANCE)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("mask", ["none", "bool", "float", "causal"])
def test_attention_keeps_its_outputs_under_masks(mask: str, fused: bool) -> None:
    torch.manual_seed(0)
    options = {"qk_norm": True, "scale_norm": True, "gated": True, "norm_layer": nn.LayerNorm}
    model = Attention(32, 4, attn_head_dim=6, dim_out=20, qkv_bias=True, **options)
    model.fused_attn = fused
    allowed = torch.rand(2, 1, 7, 7) < 0.7
    allowed[..., 0] = True
    given: dict[str, Any] = {
        "none": {},
        "bool": {"attn_mask": allowed},
        "float": {"attn_mask": torch.randn(7, 7)},
        "causal": {"is_causal": True},
    }[mask]
    torch.testing.assert_close(*both(model, torch.randn(2, 7, 32), **given), **TOLERANCE)


def test_a_trained_tail_moves_the_outputs() -> None:
    torch.manual_seed(0)
    model = Attention(32, 4)
    x = torch.randn(2, 7, 32)
    before = model(x)
    swap_attention(model, "qana")
    with torch.no_grad():
        for parameter in model.core.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    assert (model(x) - before).abs().max() > 1e-2


def test_a_part_that_is_not_known_is_refused() -> None:
    model = Attention(32, 4)
    model.register_module("talking_heads", nn.Linear(4, 4))
    with pytest.raises(NasError, match="talking_heads, which this version does not know"):
        swap_attention(model, "qana")
    assert type(model) is Attention
