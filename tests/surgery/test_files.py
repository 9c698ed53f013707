"""Saved models with swapped attention: equal outputs after loading; damaged folders are refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from torch import nn

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
    "bert": ("*.0.*", "*.1.*"),
    "t5": ("enc*block.0.*", "enc*block.1.*"),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("gpt2", torch.float32),
        ("llama", torch.bfloat16),
        ("bert", torch.float32),
        ("t5", torch.bfloat16),
    ],
)
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


def test_models_of_other_classes_or_without_a_swap_are_not_saved(tmp_path: Path) -> None:
    with pytest.raises(NasError, match="BertModel holds no swapped attention"):
        save_swapped(build("bert"), tmp_path)
    plain = nn.MultiheadAttention(8, 2)
    swap_attention(plain, "qana")
    with pytest.raises(NasError, match=r"SwappedMultiheadAttention is not .* state_dict"):
        save_swapped(plain, tmp_path)

    class GPT2LMHeadModel(hf.GPT2LMHeadModel):
        pass

    model = build("gpt2")
    swap_attention(model, "qana")
    model.__class__ = GPT2LMHeadModel
    with pytest.raises(NasError, match="GPT2LMHeadModel is not a class of transformers"):
        save_swapped(model, tmp_path)
    assert not list(tmp_path.iterdir())


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
        ("surprise", 1, "surprise"),
        ("model", "AutoModel", "'AutoModel' is no model of transformers"),
        ("model", "os.system", r"'os\.system' is no model of transformers"),
        ("model", "GPT2Config", "'GPT2Config' is no model of transformers"),
        ("model", "BertModel", "matches no known attention"),
        ("attn_implementation", "someone/kernel", "attn_implementation"),
        (f"{AT}/genome", {"graph_def": [{"op": "exec", "inputs": []}]}, "exec"),
        (f"{AT}/genome/graph_def/0/inputs", ["v", "q", "k"], "arity"),
        (f"{AT}/sizes/heads", 8, "sizes"),
        ("attention", [], "attention"),
    ],
)
def test_invalid_record_is_refused(key: str, value: Any, words: str, folder: Path) -> None:
    edit(folder / RECORD, key, value)
    with pytest.raises(NasError, match=words):
        load_swapped(folder)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("n_embd", 64, "sizes|shape"),
        ("n_positions", 32, r"of shape \(64, 32\); expected torch.float32 of \(32, 32\)"),
        ("n_layer", 3, "in the file or in the model alone"),
        ("n_head", 5, "makes no GPT2LMHeadModel"),
        # The weights of a backbone would be downloaded.
        ("vision_config", {"use_pretrained_backbone": True, "backbone": "x/y"}, "a backbone"),
    ],
)
def test_config_of_another_model_is_refused(key: str, value: Any, words: str, folder: Path) -> None:
    edit(folder / "config.json", key, value)
    with pytest.raises(NasError, match=words):
        load_swapped(folder)


def test_code_named_in_the_config_is_ignored(folder: Path) -> None:
    edit(folder / "config.json", "attn_implementation", "someone/kernel")
    edit(folder / "config.json", "auto_map", {"AutoModel": "evil.Model"})
    loaded: Any = load_swapped(folder)
    assert loaded.config._attn_implementation == "sdpa"


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
