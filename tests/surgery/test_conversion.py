"""Converted models, compared with blocks of the same weights."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

from nas.common.errors import GenomeError, NasError
from nas.compiler import build_attention
from nas.genome import Genome
from nas.store.sources import load_genome
from nas.surgery import swap_attention
from tests.genomes import build
from tests.surgery.helpers import DIM, DOT, HEADS, PLAIN, SOFTMAX, VARIANTS, tokens, windowed
from tests.tensors import add_noise, check_same, with_gradients

LENGTH = 9
NAMED = (
    "mqa",
    "rsqa",
    "flex_sqa:window=4,global_tokens=2",
    "qana:qk_dim=1/2,init=random",
    "champion_2025",
    "uniform",
)


def attention(**options: Any) -> nn.MultiheadAttention:
    torch.manual_seed(0)
    made = nn.MultiheadAttention(DIM, HEADS, batch_first=True, **options).double()
    add_noise(made, 0.1)
    return made


def block_of(swapped: Any, genome: Genome) -> nn.Module:
    """A plain block with the weights of a swapped nn.MultiheadAttention."""
    block: Any = build_attention(genome, DIM, HEADS, qkv_bias=True, reference=True).double()
    for at, name in enumerate("qkv"):
        if not hasattr(block, f"w{name}"):
            continue
        mine = getattr(block, f"w{name}")
        if hasattr(swapped, "q_proj"):
            mine.load_state_dict(getattr(swapped, f"{name}_proj").state_dict())
        else:
            weights = {"weight": swapped.in_proj_weight, "bias": swapped.in_proj_bias}
            mine.load_state_dict({key: t.chunk(3)[at] for key, t in weights.items()})
    if hasattr(block, "wo"):
        block.wo.load_state_dict(swapped.out_proj.state_dict())
    for name, module in swapped.core.named_children():
        getattr(block, name).load_state_dict(module.state_dict())
    return block


TWICE = build(
    *(DOT, *SOFTMAX, ("scaled_dot_product", [2, "k"])),
    *(("softmax", [3]), ("weighted_sum", [4, "v"])),
)
CONVERTED = {name: load_genome(name) for name in NAMED} | VARIANTS | {"twice": TWICE}


@pytest.mark.parametrize("name", CONVERTED)
def test_converted_attention_equals_a_block_with_pooled_weights(name: str) -> None:
    wanted, swapped = CONVERTED[name], attention()
    swap_attention(swapped, wanted, preserve=False)
    block = block_of(swapped, wanted)
    padding = torch.zeros(2, LENGTH, dtype=torch.bool)
    padding[1, 6:] = True
    past = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    for mine, theirs in (
        ({}, {}),
        ({"key_padding_mask": padding}, {"key_padding_mask": padding}),
        ({"attn_mask": ~past, "is_causal": True}, {"is_causal": True}),
    ):
        x, y = (tokens(LENGTH).requires_grad_() for _ in range(2))
        found = with_gradients(swapped(x, x, x, **mine)[0], [x])
        check_same(found, with_gradients(block(y, **theirs), [y]))


def copies(weight: Tensor, times: int) -> None:
    """Make the heads of each group equal to its first; rows are heads by features."""
    heads = weight.view(HEADS // times, times, DIM // HEADS, -1)
    heads.copy_(heads[:, :1].expand_as(heads).clone())


@pytest.mark.parametrize(
    ("name", "times", "kind"),
    [("ssqa", 2, "timm"), ("xsmqa", 4, "torch without bias"), ("mqa", 4, "torch")],
)
def test_pooling_equal_heads_changes_nothing(name: str, times: int, kind: str) -> None:
    torch.manual_seed(0)
    if kind == "timm":
        layer: Any = timm.layers.Attention(DIM, HEADS, qkv_bias=True).double()
        tensors = [t for one in (layer.qkv.weight, layer.qkv.bias) for t in one.data.chunk(3)]
    else:
        layer = attention(bias=kind == "torch")
        tensors = list(layer.in_proj_weight.data.chunk(3))
        tensors += [] if layer.in_proj_bias is None else list(layer.in_proj_bias.data.chunk(3))
    for at, weight in enumerate(tensors):
        if name != "mqa" or at % 3:
            copies(weight, times)
    x = tokens(LENGTH)
    given = (x,) if kind == "timm" else (x, x, x)
    before = layer(*given)
    count = sum(p.numel() for p in layer.parameters())
    swap_attention(layer, name, preserve=False)
    assert sum(p.numel() for p in layer.parameters()) < count
    before, after = (t if kind == "timm" else t[0] for t in (before, layer(*given)))
    torch.testing.assert_close(after, before, rtol=1e-12, atol=1e-12)


def test_impossible_conversions_are_refused_before_anything_changes() -> None:
    for wanted, words in (
        ("lsqa", "4 heads of queries cannot become 3/4 of 4"),
        ("patterns", "raw: shared"),
        ("messages", "merge: sum"),
    ):
        layer = attention()
        state = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
        with pytest.raises(GenomeError, match=rf"attention '': .*{words}"):
            swap_attention(layer, wanted, preserve=False)
        assert type(layer) is nn.MultiheadAttention
        assert state.keys() == layer.state_dict().keys()
    normed = timm.layers.Attention(DIM, HEADS, qk_norm=True, norm_layer=nn.LayerNorm)
    with pytest.raises(GenomeError, match="qk_dim: 1/2; expected all, the width"):
        swap_attention(normed, "mha:qk_dim=1/2", preserve=False)
    gated = timm.layers.Attention(DIM, HEADS, gated=True)
    with pytest.raises(NasError, match="has gate, which a swap does not keep"):
        swap_attention(gated, "mha")


def test_positions_across_sequences_and_later_tokens_are_refused() -> None:
    x, y = tokens(LENGTH), tokens(LENGTH)[:, :5]
    champion = attention()
    swap_attention(champion, "champion_2025", preserve=False)
    window = attention()
    swap_attention(window, windowed(PLAIN, 4), preserve=False)
    for layer in (champion, window):
        layer(x, x, x)
        with pytest.raises(ValueError, match="leave cross-attention out"):
            layer(x, y, y)
    later = attention()
    conv = (("short_conv", "k", {"causal": False}), ("scaled_dot_product", ["q", 0]))
    swap_attention(
        later, build(*conv, ("softmax", [1]), ("weighted_sum", [2, "v"])), preserve=False
    )
    later(x, x, x)
    hidden = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    with pytest.raises(ValueError, match="short_conv sees later tokens"):
        later(x, x, x, attn_mask=hidden, is_causal=True)


def test_mask_may_differ_between_heads() -> None:
    x, hidden = tokens(LENGTH), torch.zeros(2 * HEADS, LENGTH, LENGTH, dtype=torch.bool)
    hidden[:3, :, 2:] = True
    layer, swapped = attention(), attention()
    swap_attention(swapped, "mha", preserve=False)
    found, expected = (m(x, x, x, attn_mask=hidden)[0] for m in (swapped, layer))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
