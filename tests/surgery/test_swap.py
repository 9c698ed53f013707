"""Swapping attention of a model: selection, refusals, and training afterwards."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from nas.common.errors import GenomeError, NasError
from nas.surgery import swap_attention
from nas.surgery.preserving import difference, preserving
from tests.genomes import build
from tests.surgery.helpers import cores

NODES = (("qana", "qk"), ("softmax", [0]), ("weighted_sum", [1, "v"]))


def model(layers: int = 3) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 48, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


@pytest.mark.parametrize(
    ("where", "placement", "layers"),
    [
        (None, "all", [0, 1, 2]),
        (None, "first", [0]),
        (None, "alternate", [0, 2]),
        ("layers.1.self_attn", "all", [1]),
        (["layers.2.*", "layers.0.*"], "all", [0, 2]),
    ],
)
def test_placement_or_where_selects_the_attention_to_swap(
    where: Any, placement: str, layers: list[int]
) -> None:
    encoder = model()
    names = swap_attention(encoder, build(*NODES, placement=placement), where=where)
    assert names == [f"layers.{i}.self_attn" for i in layers]
    assert [core.genome.nodes for core in cores(encoder)] == [build(*NODES).nodes] * len(layers)


def test_layers_outside_of_a_hybrids_placement_get_its_window() -> None:
    hybrid = build(*NODES, placement={"every": 3, "count": 2, "rest": "mha:window=4"})
    encoder, x = model(4), torch.randn(2, 9, 32)
    with pytest.raises(GenomeError, match="changes the attention of the other layers"):
        swap_attention(encoder, hybrid)
    names = swap_attention(encoder, hybrid, preserve=False)
    assert names == [f"layers.{i}.self_attn" for i in range(4)]
    windows = [core.genome.visibility.window for core in cores(encoder)]
    assert windows == [None, None, 4, None]
    # The window hides keys of the model's own attention.
    near = torch.arange(9)[:, None] - torch.arange(9)
    third, original = encoder.layers[2], model(4).layers[2]
    expected = original(x, src_mask=near.abs() > 2)
    torch.testing.assert_close(third(x), expected)
    by_name = model(4)
    assert swap_attention(by_name, hybrid, where="layers.1.*") == ["layers.1.self_attn"]


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("layers.7.*", r"\['layers\.7\.\*'\] matches no known attention"),
        (["layers.0.*", "layers.7.*"], r"\['layers\.7\.\*'\] matches"),
        ([], r"\[\] matches"),
    ],
)
def test_where_without_a_match_is_refused(where: Any, words: str) -> None:
    encoder = model()
    with pytest.raises(NasError, match=rf"where: .*{words}.* 'layers\.0\.self_attn', 'layers\.1"):
        swap_attention(encoder, "qana", where=where)
    assert not cores(encoder)


def test_mode_dtype_and_gradients_are_those_of_the_model() -> None:
    encoder = model().double().eval()
    swap_attention(encoder, "qana")
    assert {p.dtype for p in encoder.parameters()} == {torch.float64}
    assert not any(m.training for m in encoder.modules())
    assert all(p.requires_grad for core in cores(encoder) for p in core.parameters())


def test_convolutions_start_as_the_identity_and_output_gates_do_not() -> None:
    filtered = build(
        ("short_conv", "k"),
        ("scaled_dot_product", ["q", 0]),
        ("softmax", [1]),
        ("weighted_sum", [2, "v"]),
    )
    assert difference(filtered) > 0.1
    assert difference(preserving(filtered)) < 1e-9
    assert swap_attention(nn.MultiheadAttention(12, 4), filtered) == [""]
    with pytest.raises(GenomeError, match=r"differs from softmax attention.*preserve=False"):
        swap_attention(model(), "gated_attention")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("additive", r"tanh.* differs from softmax attention by .*, such as mha or qana"),
        ("sqa", r"q_heads: 1/2, kv_heads: 1/4; expected the projections"),
        ("messages", r"has_wo: False, merge: sum"),
        ("patterns", r"has_wk: False"),
        ("sw_sqa", "window"),
    ],
)
def test_a_mechanism_that_changes_the_model_is_refused(name: str, words: str) -> None:
    encoder = model()
    with pytest.raises(GenomeError, match=words):
        swap_attention(encoder, name)
    assert not cores(encoder)
