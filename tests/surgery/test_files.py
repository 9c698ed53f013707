"""Saved models with swapped attention: equal outputs after loading; damaged folders are refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

import nas
from nas.common.errors import NasError
from nas.genome import Genome
from nas.surgery import load_swapped, save_swapped, swap_attention
from nas.surgery.files import RECORD, WEIGHTS
from nas.testing.hosts import cores, randomise
from tests.surgery.helpers import DOT, SOFTMAX, windowed
from tests.surgery.test_hosts_transformers import build, inputs, output, tokens

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Build = Callable[..., Genome]


WHERE = {  # the attention modules of the first layer, and of the second
    "gpt2": ("*.0.attn", "*.1.attn"),
    "llama": ("*.0.self_attn", "*.1.self_attn"),
}


@pytest.mark.parametrize(("name", "dtype"), [("gpt2", torch.float32), ("llama", torch.bfloat16)])
def test_saved_model_loads_with_equal_outputs(
    name: str, dtype: torch.dtype, tmp_path: Path, genome: Build
) -> None:
    model = build(name)
    mechanism = windowed(genome(DOT, *SOFTMAX, kv_heads="1/2", has_wq=False), 6)
    swap_attention(model, mechanism, where=WHERE[name][0], preserve=False)
    swap_attention(model, "qana", where=WHERE[name][1], init="gate")
    model.to(dtype)
    randomise(model)
    arguments = inputs(name, model, "right")
    folder = tmp_path / "new" / "model"
    save_swapped(model, folder)
    state = torch.get_rng_state()
    loaded = load_swapped(folder)
    assert type(loaded) is type(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(output(loaded, arguments), output(model, arguments))
    assert [core.genome for core in cores(loaded)] == [core.genome for core in cores(model)]
    save_swapped(loaded, tmp_path / "again")
    assert (tmp_path / "again" / RECORD).read_text() == (folder / RECORD).read_text()


def test_tied_weights_and_generation_settings_are_kept(tmp_path: Path) -> None:
    model = build("gpt2")
    swap_attention(model, "mqa", preserve=False)
    model.generation_config.max_new_tokens = 5
    model.generation_config.pad_token_id = 0
    model.set_attn_implementation("eager")
    nas.save_swapped(model, tmp_path)
    loaded: Any = nas.load_swapped(tmp_path)
    assert loaded.lm_head.weight is loaded.transformer.wte.weight
    assert loaded.config._attn_implementation == "eager"
    generated = loaded.generate(tokens(), do_sample=False)
    assert generated.shape[1] <= tokens().shape[1] + 5
    assert torch.equal(generated, model.generate(tokens(), do_sample=False))
    assert not loaded.training
    with pytest.raises(OSError, match=r"model\.safetensors"):
        hf.GPT2LMHeadModel.from_pretrained(tmp_path)  # it would drop the mechanism


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a saved GPT-2."""
    model = build("gpt2")
    swap_attention(model, "gqa", preserve=False)
    save_swapped(model, tmp_path)
    return tmp_path


def edit(file: Path, key: str, value: Any) -> None:
    """Set a value of a JSON file at a path of keys with slashes."""
    document = part = json.loads(file.read_text())
    *path, last = key.split("/")
    for name in path:
        part = part[int(name) if name.isdigit() else name]
    part[last] = value
    file.write_text(json.dumps(document))


AT = "attention/transformer.h.0.attn"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("version", 2, "version"),
        ("model", "os.system", r"'os\.system' is no model of transformers"),
        (f"{AT}/genome", {"graph_def": [{"op": "exec", "inputs": []}]}, "exec"),
        (f"{AT}/sizes/heads", 8, "sizes"),
    ],
)
def test_invalid_record_is_refused(key: str, value: Any, words: str, folder: Path) -> None:
    edit(folder / RECORD, key, value)
    with pytest.raises(NasError, match=words):
        load_swapped(folder)


def test_damaged_weights_are_refused(folder: Path) -> None:
    weights = load_file(folder / WEIGHTS)
    name = next(name for name, tensor in weights.items() if tensor.is_floating_point())
    save_file({**weights, name: weights[name].to(torch.int32)}, folder / WEIGHTS)
    with pytest.raises(NasError, match=r"is torch\.int32 of shape"):
        load_swapped(folder)
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-9])
    with pytest.raises(NasError, match="cannot be read as safetensors"):
        load_swapped(folder)
    (folder / RECORD).unlink()
    with pytest.raises(NasError, match=f"has no {RECORD}"):
        load_swapped(folder)
