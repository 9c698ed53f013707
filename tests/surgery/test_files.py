"""Swapped models in folders: written, read, and refused where a folder is not what it should be."""

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
    patterns = {
        "gpt2": "*.0.attn",
        "llama": "*.0.self_attn",
        "bert": "*.0.*",
        "t5": "enc*block.0.*",
    }
    swap_attention(model, mechanism, where=patterns[name], preserve=False)
    others = {"gpt2": "*.1.attn", "llama": "*.1.self_attn", "bert": "*.1.*", "t5": "enc*block.1.*"}
    swap_attention(model, "qana", where=others[name], init="gate")
    model.to(dtype)
    randomise(model)
    given = inputs(name, model, "right")
    folder = tmp_path / "new" / "model"
    save_swapped(model, folder)
    state = torch.get_rng_state()
    loaded = load_swapped(folder)
    assert type(loaded) is type(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(output(loaded, given), output(model, given))
    assert [core.genome for core in cores(loaded)] == [core.genome for core in cores(model)]
    assert [p.shape for p in loaded.parameters()] == [p.shape for p in model.parameters()]
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
    found = loaded.generate(tokens(), do_sample=False)
    assert found.shape[1] <= tokens().shape[1] + 5
    assert torch.equal(found, model.generate(tokens(), do_sample=False))
    assert not loaded.training
    with pytest.raises(OSError, match=r"model\.safetensors"):
        hf.GPT2LMHeadModel.from_pretrained(tmp_path)  # it would drop the mechanism


def test_models_of_other_classes_or_without_a_swap_are_not_saved(tmp_path: Path) -> None:
    with pytest.raises(NasError, match="BertModel holds no swapped attention; its save_pretrained"):
        save_swapped(build("bert"), tmp_path)
    plain = nn.MultiheadAttention(8, 2)
    swap_attention(plain, "qana")
    with pytest.raises(NasError, match="'SwappedMultiheadAttention' is no model of transformers"):
        save_swapped(plain, tmp_path)

    class GPT2LMHeadModel(hf.GPT2LMHeadModel):
        pass

    model = build("gpt2")
    swap_attention(model, "qana")
    model.__class__ = GPT2LMHeadModel
    with pytest.raises(NasError, match="GPT2LMHeadModel is not the one of transformers"):
        save_swapped(model, tmp_path)
    assert not list(tmp_path.iterdir())


def edited(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """A change of a record: a path of keys with slashes."""

    def edit(record: dict[str, Any]) -> None:
        *path, last = key.split("/")
        for part in path:
            record = record[int(part) if part.isdigit() else part]
        record[last] = value

    return edit


AT = "attention/transformer.h.0.attn"


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (edited("version", 2), "version"),
        (edited("surprise", 1), "surprise"),
        (edited("model", "AutoModel"), "'AutoModel' is no model of transformers"),
        (edited("model", "os.system"), r"'os\.system' is no model of transformers"),
        (edited("model", "GPT2Config"), "'GPT2Config' is no model of transformers"),
        (edited("model", "BertModel"), "matches no known attention"),
        (edited("attn_implementation", "someone/kernel"), "attn_implementation"),
        (edited(f"{AT}/genome", {"graph_def": [{"op": "exec", "inputs": []}]}), "exec"),
        (edited(f"{AT}/genome", {"graph": []}), "unknown key 'graph'"),
        (edited(f"{AT}/genome/graph_def/0/inputs", ["v", "q", "k"]), "arity"),
        (edited(f"{AT}/sizes/heads", 8), "sizes"),
        (edited("attention/nowhere", {"genome": {}, "sizes": {}}), "graph_def"),
        (edited("attention", []), "attention"),
    ],
)
def test_invalid_records_are_refused(
    edit: Callable[[dict[str, Any]], None], words: str, tmp_path: Path
) -> None:
    model = build("gpt2")
    swap_attention(model, "gqa", preserve=False)
    save_swapped(model, tmp_path)
    record = json.loads((tmp_path / RECORD).read_text())
    edit(record)
    (tmp_path / RECORD).write_text(json.dumps(record))
    with pytest.raises(NasError, match=words):
        load_swapped(tmp_path)


def test_damaged_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NasError, match=rf"has no {RECORD}; expected a folder that nas\.save_swap"):
        load_swapped(tmp_path)
    model = build("gpt2")
    swap_attention(model, "gqa", preserve=False)
    save_swapped(model, tmp_path)
    whole = (tmp_path / WEIGHTS).read_bytes()
    for content, words in (
        (whole[:-9], "cannot be read as safetensors"),
        (b"", "cannot be read as safetensors"),
    ):
        (tmp_path / WEIGHTS).write_bytes(content)
        with pytest.raises(NasError, match=words):
            load_swapped(tmp_path)
    (tmp_path / WEIGHTS).write_bytes(whole)
    config = json.loads((tmp_path / "config.json").read_text())
    for change, words in (
        ({"n_embd": 64}, "sizes|shape"),
        ({"n_positions": 32}, r"of shape \(64, 32\); expected torch.float32 of \(32, 32\)"),
        ({"n_layer": 3}, "in the file or in the model alone"),
        ({"n_head": 5}, "makes no GPT2LMHeadModel"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(NasError, match=words):
            load_swapped(tmp_path)
    hostile = {"attn_implementation": "someone/kernel", "auto_map": {"AutoModel": "evil.Model"}}
    (tmp_path / "config.json").write_text(json.dumps(config | hostile))
    loaded: Any = load_swapped(tmp_path)
    assert loaded.config._attn_implementation == "sdpa"


def test_loading_downloads_nothing_and_checks_dtypes(tmp_path: Path) -> None:
    model = build("gpt2")
    swap_attention(model, "gqa", preserve=False)
    save_swapped(model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    hostile = {**config, "vision_config": {"use_pretrained_backbone": True, "backbone": "x/y"}}
    (tmp_path / "config.json").write_text(json.dumps(hostile))
    with pytest.raises(NasError, match="asks for a backbone"):
        load_swapped(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    weights = load_file(tmp_path / WEIGHTS)
    name = next(name for name, tensor in weights.items() if tensor.is_floating_point())
    save_file({**weights, name: weights[name].to(torch.int32)}, tmp_path / WEIGHTS)
    with pytest.raises(NasError, match=r"is torch\.int32 of shape"):
        load_swapped(tmp_path)
