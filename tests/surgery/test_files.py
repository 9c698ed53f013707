"""Saved models with swapped attention: equal outputs after loading into a new model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import nas
from nas.common.errors import NasError
from tests.genomes import build as genome
from tests.surgery.helpers import DOT, SOFTMAX, cores, randomise, windowed
from tests.surgery.test_hosts_transformers import build, inputs, output

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_saved_model_loads_with_equal_outputs(name: str, tmp_path: Path) -> None:
    """GPT-2's weights of words and outputs are one tensor."""
    model = build(name)
    pooled = windowed(genome(DOT, *SOFTMAX, kv_heads="1/2", has_wq=False), 6)
    nas.swap_attention(model, pooled, where="*.0.*attn", preserve=False)
    nas.swap_attention(model, "qana", where="*.1.*attn")
    randomise(model)
    nas.save_swapped(model, tmp_path / "model.pt")
    other = build(name)
    loaded = nas.load_swapped(other, tmp_path / "model.pt")
    assert loaded is other
    given = inputs(name, "right")
    assert torch.equal(output(loaded, given), output(model, given))
    assert [core.genome for core in cores(loaded)] == [core.genome for core in cores(model)]


def test_a_model_that_is_the_attention_itself_is_saved_too(tmp_path: Path) -> None:
    attention, x = nn.MultiheadAttention(12, 4, batch_first=True), torch.randn(1, 5, 12)
    nas.swap_attention(attention, "mqa", preserve=False)
    nas.save_swapped(attention, tmp_path / "model.pt")
    loaded = nas.load_swapped(nn.MultiheadAttention(12, 4, batch_first=True), tmp_path / "model.pt")
    assert torch.equal(loaded(x, x, x)[0], attention(x, x, x)[0])


def test_other_models_and_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NasError, match="Linear holds no swapped attention"):
        nas.save_swapped(nn.Linear(3, 3), tmp_path / "model.pt")
    model = nn.MultiheadAttention(12, 4, batch_first=True)
    with pytest.raises(NasError, match=r"model\.pt: cannot be read \(No such file"):
        nas.load_swapped(model, tmp_path / "model.pt")
    for written in ("no tensors", nn.Linear(3, 3).state_dict()):
        torch.save(written, tmp_path / "model.pt")
        with pytest.raises(NasError, match=r"expected a file that nas\.save_swapped wrote"):
            nas.load_swapped(model, tmp_path / "model.pt")
    nas.swap_attention(model, "mha")
    nn.init.constant_(model.out_proj.bias, math.nan)
    nas.save_swapped(model, tmp_path / "model.pt")
    with pytest.raises(NasError, match=r"'out_proj\.bias' contains NaN"):
        nas.load_swapped(nn.MultiheadAttention(12, 4, batch_first=True), tmp_path / "model.pt")
