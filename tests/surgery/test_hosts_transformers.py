"""Swapped models of Hugging Face, built small with random weights: outputs and tokens."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load
from torch import Tensor, nn

from nas.common.errors import NasError, NasWarning
from nas.store.sources import load_genome
from nas.surgery import swap_attention
from tests.surgery.helpers import TOLERANCE, assert_same, swapped

SMALL = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
COMMON = SMALL | {"intermediate_size": 37, "max_position_embeddings": 64}
GROUPED = COMMON | {"num_key_value_heads": 2, "pad_token_id": 0}
GPT2 = {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}

# By name: the model's class, its config's, and what the config says.
MODELS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "vit": (hf.ViTModel, hf.ViTConfig, COMMON | {"image_size": 32, "patch_size": 8}),
    "gpt2": (
        hf.GPT2LMHeadModel,
        hf.GPT2Config,
        GPT2 | {"bos_token_id": 1, "eos_token_id": 2, "scale_attn_by_inverse_layer_idx": True},
    ),
    "llama": (hf.LlamaForCausalLM, hf.LlamaConfig, GROUPED | {"attention_bias": True}),
    "mistral": (hf.MistralForCausalLM, hf.MistralConfig, GROUPED | {"sliding_window": None}),
    "qwen2": (hf.Qwen2ForCausalLM, hf.Qwen2Config, GROUPED),
    "qwen3": (hf.Qwen3ForCausalLM, hf.Qwen3Config, GROUPED | {"head_dim": 16}),
    "gemma": (hf.GemmaForCausalLM, hf.GemmaConfig, GROUPED | {"head_dim": 16}),
}


def build(name: str, implementation: str = "sdpa", **options: Any) -> Any:
    """Return a model in eval mode whose weights are large enough for attention far from uniform."""
    torch.manual_seed(0)
    kind, config, sizes = MODELS[name]
    model = kind(config(**sizes | options, attn_implementation=implementation)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1 and parameter.std() < 0.1:
                parameter.mul_(8.0)
    return model


def tokens() -> Tensor:
    return torch.randint(3, 90, (2, 9), generator=torch.Generator().manual_seed(0))


def inputs(name: str, padding: str = "none") -> dict[str, Any]:
    if name == "vit":
        return {"pixel_values": torch.randn(2, 3, 32, 32)}
    given = {"input_ids": tokens()}
    if padding != "none":
        mask = torch.ones_like(tokens())
        mask[1, :3] = 0
        given["attention_mask"] = mask if padding == "left" else mask.flip(1)
    return given


def output(model: Any, given: dict[str, Any]) -> Tensor:
    """Return the first output at the tokens that are not padding."""
    first: Tensor = model(**given)[0]
    return first[given["attention_mask"].bool()] if "attention_mask" in given else first


@pytest.mark.parametrize("name", MODELS)
def test_a_model_keeps_its_outputs(name: str) -> None:
    model = build(name, "eager" if name in ("llama", "vit") else "sdpa")
    other = swapped(model)
    for padding in ("none", "left", "right"):
        given = inputs(name, padding)
        torch.testing.assert_close(output(other, given), output(model, given), **TOLERANCE)


class Adapted(nn.Module):
    """A linear map with LoRA, as in the package peft."""

    def __init__(self, base: Any) -> None:
        super().__init__()
        self.base, self.weight, self.bias = base, base.weight, base.bias
        rows, columns = base.weight.shape if type(base) is nn.Linear else base.weight.T.shape
        self.a, self.b = nn.Linear(columns, 2, bias=False), nn.Linear(2, rows, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        adapted: Tensor = self.base(x) + self.b(self.a(x))
        return adapted


@pytest.mark.parametrize(("name", "part"), [("mqa", "c_attn.q"), ("qana", "c_attn")])
def test_lora_trains_in_swapped_models_and_is_not_lost_in_a_swap(name: str, part: str) -> None:
    model, genome = build("gpt2"), load_genome(name)
    swap_attention(model, genome, preserve=False, where="*.attn")
    before = model(tokens()).logits
    for block in model.transformer.h:
        block.attn.set_submodule(part, Adapted(block.attn.get_submodule(part)))
    adapters = [m for m in model.modules() if isinstance(m, Adapted)]
    assert (model(tokens()).logits - before).abs().max() > 1e-3
    model(tokens()).logits.square().sum().backward()
    assert all(m.a.weight.grad.any() and m.b.weight.grad.any() for m in adapters)
    other = build("gpt2")
    first = other.transformer.h[0].attn
    first.c_attn = Adapted(first.c_attn)
    if name == "qana":
        assert swap_attention(other, genome)
        assert isinstance(first.c_attn, Adapted)
    else:
        with pytest.raises(
            NasError, match=r"h\.0\.attn': .* lose what c_attn adds .* merge adapters"
        ):
            swap_attention(other, genome, preserve=False, where="*.attn")


@pytest.mark.parametrize("copy", [lambda model: model, deepcopy])
def test_save_pretrained_says_that_it_saves_no_mechanism(copy: Any, tmp_path: Path) -> None:
    model = copy(swapped(build("gpt2")))
    for part in (model, model.transformer):
        with pytest.warns(NasWarning, match="no mechanism.*after the same swap"):
            part.save_pretrained(tmp_path)
    with open(tmp_path / "model.safetensors", "rb") as file:
        assert load(file.read()).keys() >= {"h.0.attn.core.qana_0.tail.weight"}


def test_dropout_in_training_draws_the_same_numbers() -> None:
    model = build("llama", "eager", attention_dropout=0.4).train()
    other = swapped(model)
    assert_same(lambda: other(tokens()).logits, lambda: model(tokens()).logits)


def test_sliding_windows_and_other_masks_are_refused() -> None:
    sliding = build("mistral", sliding_window=4)
    with pytest.raises(NasError, match=r"layers.0.self_attn': MistralAttention has a sliding wind"):
        swap_attention(sliding, "qana")
    module = swapped(build("llama")).model.layers[0].self_attn
    x = torch.randn(2, 5, 32)
    angles = (torch.ones(1, 5, 8), torch.zeros(1, 5, 8))
    with pytest.raises(NasError, match="needs the masks of eager or sdpa"):
        module(hidden_states=x, position_embeddings=angles, attention_mask=torch.ones(2, 5).bool())
