"""Swapped models of torch, torchvision and timm: equal outputs under all masks and modes."""

from __future__ import annotations

import pickle
from copy import deepcopy
from typing import Any

import pytest
import timm.layers
import torch
from torch import Tensor, nn
from torch.fx.proxy import TraceError
from torchvision.models.feature_extraction import create_feature_extractor
from torchvision.models.vision_transformer import VisionTransformer

from nas.common.errors import NasError
from nas.surgery import swap_attention
from nas.surgery.hosts import SwappedMultiheadAttention
from tests.surgery.helpers import TOLERANCE, assert_same, cores, randomise, swapped
from tests.surgery.test_hosts_transformers import build, tokens

CAUSAL = torch.ones(7, 7, dtype=torch.bool).triu(1)
PADDING = torch.arange(7) >= torch.tensor([5, 7, 3])[:, None]

MASKS: list[dict[str, Any]] = [
    {},
    {"mask": CAUSAL},
    {"mask": CAUSAL, "is_causal": True},
    {"mask": torch.zeros(7, 7).masked_fill(CAUSAL, -torch.inf)},
    {"src_key_padding_mask": PADDING},
    {"mask": CAUSAL, "src_key_padding_mask": PADDING},
]


def hosted(kind: str) -> tuple[nn.Module, list[Tensor]]:
    """A model of each host, and arguments of a call of it."""
    torch.manual_seed(0)
    x = torch.randn(2, 5, 32)
    if kind == "torch":
        return nn.MultiheadAttention(32, 4, batch_first=True), [x] * 3
    if kind == "timm":
        return timm.layers.Attention(32, 4, qk_norm=True, norm_layer=nn.LayerNorm), [x]
    return build(kind), [tokens()]


@pytest.mark.parametrize("kind", ["torch", "timm", "llama", "gpt2"])
def test_swapped_model_keeps_names_and_attends_by_the_mechanism(kind: str) -> None:
    model, inputs = hosted(kind)
    other = swapped(model)
    state = other.state_dict()
    assert all(torch.equal(state.pop(name), tensor) for name, tensor in model.state_dict().items())
    assert state
    assert all(".core." in f".{name}" for name in state)
    before = other(*inputs)[0]
    randomise(other)
    after = other(*inputs)[0]
    assert (after - before).abs().max() > 1e-3
    for copy in (pickle.loads(pickle.dumps(other)), deepcopy(other)):
        torch.testing.assert_close(copy(*inputs)[0], after)
    after.square().sum().backward()
    assert all(any(p.grad.any() for p in core.parameters()) for core in cores(other))
    with pytest.raises(NasError, match="swapped before"):
        swap_attention(other, "qana")


def encoder(**options: Any) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 48, **{"dropout": 0.0} | options)
    nests = layer.self_attn.batch_first and not layer.norm_first
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=nests)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize(
    ("options", "where", "train", "grad"),
    [
        ({"batch_first": True}, None, False, False),
        ({"batch_first": True, "norm_first": True}, ["layers.1.*"], False, True),
        ({"batch_first": False}, None, True, True),
        ({"batch_first": True, "bias": False, "norm_first": True}, None, True, False),
    ],
    ids=str,
)
def test_an_encoder_keeps_its_outputs(
    options: dict[str, Any], where: Any, train: bool, grad: bool
) -> None:
    """In eval mode without gradients, torch uses its fast path and nested tensors."""
    model = encoder(**options).train(train)
    other = swapped(model, where=where)
    x = torch.randn(3, 7, 32) if options["batch_first"] else torch.randn(7, 3, 32)
    with torch.set_grad_enabled(grad):
        for masks in MASKS:
            found, expected = other(x, **masks), model(x, **masks)
            if "src_key_padding_mask" in masks:  # nested tensors give zeros there
                batched = [
                    t if options["batch_first"] else t.transpose(0, 1) for t in (found, expected)
                ]
                found, expected = (t[~PADDING] for t in batched)
            torch.testing.assert_close(found, expected, **TOLERANCE)


@pytest.mark.parametrize("where", [None, ["layers.1.*"]])
def test_fast_path_of_torch_does_not_bypass_the_mechanism(where: Any) -> None:
    """Torch would compute the attention itself where it may: in eval mode, without gradients."""
    model = encoder(batch_first=True)
    other = swapped(model, where=where)
    randomise(other)
    x = torch.randn(3, 7, 32)
    for masks in MASKS:
        expected = other.train()(x, **masks).detach()
        with torch.no_grad():
            found, before = other.eval()(x, **masks), model.eval()(x, **masks)
        if "src_key_padding_mask" in masks:
            found, expected, before = found[~PADDING], expected[~PADDING], before[~PADDING]
        torch.testing.assert_close(found, expected, **TOLERANCE)
        assert (found - before).abs().max() > 1e-2


def test_a_swapped_vit_is_traced_and_exported_but_not_scripted() -> None:
    vit = swapped(VisionTransformer(32, 8, 2, 4, 32, 48).eval())
    randomise(vit)
    images, options = torch.randn(2, 3, 32, 32), {"leaf_modules": [SwappedMultiheadAttention]}
    found = create_feature_extractor(vit, ["heads"], tracer_kwargs=options)(images)["heads"]
    torch.testing.assert_close(found, vit(images))
    torch.testing.assert_close(torch.export.export(vit, (images,)).module()(images), found)
    with pytest.raises(TraceError), torch.no_grad():
        create_feature_extractor(vit, ["heads"])


def draw_mask(kind: str) -> Tensor | None:
    mask = torch.rand(*((8,) if kind == "heads" else ()), 5, 6) < 0.4
    mask[..., 0] = False
    return {"none": None, "float": torch.randn(5, 6)}.get(kind, mask)


@pytest.mark.parametrize(
    ("options", "kind"),
    [({}, "none"), ({"bias": False}, "bool"), ({}, "heads"), ({"dropout": 0.5}, "float")],
    ids=str,
)
def test_multi_head_attention_keeps_outputs_and_weights(options: dict[str, Any], kind: str) -> None:
    """Dropout draws the same numbers for the same weights, so it is compared too."""
    torch.manual_seed(0)
    model = nn.MultiheadAttention(32, 4, batch_first=True, **options)
    other = swapped(model)
    tokens = [torch.randn(2, n, 32) for n in (5, 6, 6)]
    padding = torch.arange(6) >= torch.tensor([6, 4])[:, None]
    if kind == "float":
        padding = torch.zeros(2, 6).masked_fill(padding, -torch.inf)
    given = {"attn_mask": draw_mask(kind), "key_padding_mask": padding}
    for average in (True, False):
        assert_same(other, model, *tokens, **given, average_attn_weights=average)
    assert other(*tokens, need_weights=False)[1] is None


def test_row_without_visible_keys_gives_zeros() -> None:
    model = swapped(nn.MultiheadAttention(32, 4, batch_first=True))
    x = torch.randn(1, 3, 32)
    mask = torch.tensor([[True] * 3, [False] * 3, [False] * 3])
    out, weights = model(x, x, x, attn_mask=mask)
    torch.testing.assert_close(out[0, 0], model.out_proj.bias)
    assert weights[0, 0].tolist() == [0.0] * 3


@pytest.mark.parametrize(
    ("option", "value"), [("add_bias_kv", True), ("add_zero_attn", True), ("kdim", 16)]
)
def test_keys_that_are_no_tokens_or_of_another_width_are_refused(option: str, value: Any) -> None:
    model = nn.Sequential(nn.MultiheadAttention(32, 4), nn.MultiheadAttention(32, 4))
    model.append(nn.MultiheadAttention(32, 4, **{option: value}))
    with pytest.raises(NasError, match=f"attention '2': MultiheadAttention has {option}"):
        swap_attention(model, "qana")
    assert [type(m) for m in model] == [nn.MultiheadAttention] * 3
    assert swap_attention(model, "qana", where=["0", "1"]) == ["0", "1"]


@pytest.mark.parametrize(
    ("mask", "fused"), [("none", True), ("bool", False), ("float", True), ("causal", False)]
)
def test_attention_of_timm_keeps_its_outputs_under_masks(mask: str, fused: bool) -> None:
    """Without torch's fused attention also in training, whose dropout draws the same numbers."""
    torch.manual_seed(0)
    options = {"qk_norm": True, "norm_layer": nn.LayerNorm, "attn_drop": 0.3, "proj_drop": 0.1}
    model = timm.layers.Attention(32, 4, attn_head_dim=6, dim_out=20, qkv_bias=fused, **options)
    model.train(not fused).fused_attn = fused
    allowed = torch.rand(2, 1, 7, 7) < 0.7
    allowed[..., 0] = True
    given: dict[str, Any] = {
        "none": {},
        "bool": {"attn_mask": allowed},
        "float": {"attn_mask": torch.randn(7, 7)},
        "causal": {"is_causal": True},
    }[mask]
    other, x = swapped(model), torch.randn(2, 7, 32)
    assert_same(other, model, x, **given)
    randomise(other)
    assert (other(x, **given) - model(x, **given)).abs().max() > 1e-2
