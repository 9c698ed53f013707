"""Swapped models of Hugging Face, built small with random weights: outputs, tokens, files."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from nas.common.errors import GenomeError, NasError
from nas.surgery import swap_attention
from nas.testing.hosts import check_host, cores, randomise, swapped
from tests.surgery.helpers import assert_same, with_cache

SMALL = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
COMMON = SMALL | {"intermediate_size": 37, "max_position_embeddings": 64}
GROUPED = COMMON | {"num_key_value_heads": 2, "pad_token_id": 0}
SLIDING = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
GPT2 = {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
T5 = {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 37, "num_layers": 2, "num_heads": 4}
IMAGES = {"image_size": 32, "patch_size": 8}
ENDS = {"bos_token_id": 1, "eos_token_id": 2}

# By name: the model's class, its config's, and what the config says.
MODELS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "bert": (hf.BertModel, hf.BertConfig, COMMON),
    "vit": (hf.ViTModel, hf.ViTConfig, COMMON | IMAGES),
    "siglip": (hf.SiglipVisionModel, hf.SiglipVisionConfig, COMMON | IMAGES),
    "gpt2": (
        hf.GPT2LMHeadModel,
        hf.GPT2Config,
        GPT2 | ENDS | {"scale_attn_by_inverse_layer_idx": True},
    ),
    "llama": (hf.LlamaForCausalLM, hf.LlamaConfig, GROUPED | {"attention_bias": True}),
    "mistral": (hf.MistralForCausalLM, hf.MistralConfig, GROUPED | {"sliding_window": 4}),
    "qwen2": (hf.Qwen2ForCausalLM, hf.Qwen2Config, GROUPED),
    "qwen3": (hf.Qwen3ForCausalLM, hf.Qwen3Config, GROUPED | SLIDING | {"head_dim": 16}),
    "phi": (hf.PhiForCausalLM, hf.PhiConfig, GROUPED),  # half of a head is rotated
    "cohere": (hf.CohereForCausalLM, hf.CohereConfig, GROUPED | ENDS),  # rotates neighbours
    "gemma2": (
        hf.Gemma2ForCausalLM,
        hf.Gemma2Config,
        GROUPED | {"head_dim": 8, "query_pre_attn_scalar": 20, "attn_logit_softcapping": 2.0},
    ),
    "t5": (hf.T5ForConditionalGeneration, hf.T5Config, T5),  # scale 1, position bias
    "bart": (
        hf.BartForConditionalGeneration,
        hf.BartConfig,
        {"vocab_size": 99, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1}
        | {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
        | {"encoder_ffn_dim": 37, "decoder_ffn_dim": 37},
    ),
}
EAGER = ("gemma2", "llama", "t5")
RUNS = [(name, "eager" if name in EAGER else "sdpa") for name in MODELS]


def build(name: str, implementation: str = "sdpa", **options: Any) -> Any:
    """Return a model in eval mode whose weights are large enough for attention far from uniform."""
    torch.manual_seed(0)
    kind, config, sizes = MODELS[name]
    model = kind(config(**sizes | options, attn_implementation=implementation)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1 and not parameter.is_meta and parameter.std() < 0.1:
                parameter.mul_(8.0)
    return model


def tokens() -> Tensor:
    return torch.randint(3, 90, (2, 9), generator=torch.Generator().manual_seed(0))


def inputs(name: str, model: Any, padding: str = "none") -> dict[str, Any]:
    if name in ("vit", "siglip"):
        return {"pixel_values": torch.randn(2, 3, 32, 32)}
    given = {"input_ids": tokens()}
    if model.config.is_encoder_decoder:
        given["decoder_input_ids"] = tokens()
    if padding != "none":
        mask = torch.ones_like(tokens())
        mask[1, :3] = 0
        given["attention_mask"] = mask if padding == "left" else mask.flip(1)
    return given


def output(model: Any, given: dict[str, Any]) -> Tensor:
    first: Tensor = model(**given)[0]
    return first


def assert_same_outputs(model: nn.Module, expected: nn.Module, given: dict[str, Any]) -> None:
    assert_same(partial(output, model), partial(output, expected), given)


def test_host_keeps_its_promises() -> None:
    check_host("transformers", build("llama"), tokens())


@pytest.mark.parametrize(("name", "implementation"), RUNS)
def test_a_model_keeps_its_outputs(name: str, implementation: str) -> None:
    model = build(name, implementation)
    other = swapped(model)
    for padding in ("none", "left", "right"):
        assert_same_outputs(other, model, inputs(name, model, padding))


class TF32Products(TorchDispatchMode):
    """Rounds float32 operands of matrix products to TF32, as a GPU does below "highest"."""

    PRODUCTS = {"mm": (0, 1), "addmm": (1, 2), "bmm": (0, 1), "baddbmm": (1, 2)}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        operands = self.PRODUCTS.get(function.overloadpacket.__name__, ())
        if torch.get_float32_matmul_precision() != "highest":
            args = [rounded_to_tf32(a) if i in operands else a for i, a in enumerate(args)]
        return function(*args, **(kwargs or {}))


def rounded_to_tf32(x: Tensor) -> Tensor:
    """Keep ten bits of the mantissa of float32 numbers."""
    if x.dtype != torch.float32:
        return x
    bits = x.contiguous().view(torch.int32)
    return (((bits + 0x1000) & ~0x1FFF).view(torch.float32)).view(x.shape)


def test_a_swap_is_accepted_under_tf32() -> None:
    model = build("llama", "sdpa")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        with TF32Products():
            swap_attention(model, "qana")
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(("name", "init"), [("bert", "gate"), ("llama", "zero_out")])
def test_dropout_in_training_draws_the_same_numbers(name: str, init: str) -> None:
    rate = "attention_probs_dropout_prob" if name == "bert" else "attention_dropout"
    model = build(name, "eager", **{rate: 0.4}).train()
    given = inputs(name, model)
    assert_same_outputs(swapped(model, init=init), model, given)
    assert (output(model, given) - output(model.eval(), given)).abs().max() > 1e-3


WHISPER = {
    "vocab_size": 99, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "num_mel_bins": 8,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 37,
    "decoder_ffn_dim": 37, "max_source_positions": 20, "max_target_positions": 30,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "mechanism"),
    [("t5", "sw_sqa:window=4"), ("whisper", "champion_2025")],
)
def test_encoder_decoder_models_take_a_mechanism_outside_cross_attention(
    kind: str, mechanism: str
) -> None:
    """Cross-attention is refused by name before anything changes; without it, decoding works."""
    if kind == "t5":
        model, given = build("t5", decoder_start_token_id=0), {"input_ids": tokens()}
    else:
        torch.manual_seed(0)
        model = hf.WhisperForConditionalGeneration(hf.WhisperConfig(**WHISPER)).eval()
        given = {"input_features": torch.randn(2, 8, 40)}
    with pytest.raises(GenomeError, match=r"(EncDecAttention|encoder_attn)': it is cross-att"):
        swap_attention(model, mechanism, preserve=False)
    assert not cores(model)

    def is_self(name: str, module: nn.Module) -> bool:
        return not name.endswith(("EncDecAttention", "encoder_attn"))

    swap_attention(model, mechanism, where=is_self, preserve=False)
    whole = model(**given, decoder_input_ids=tokens()).logits
    first = model(**given, decoder_input_ids=tokens()[:, :6], use_cache=True)
    cache = with_cache(model, first.past_key_values)
    rest = model(**given, decoder_input_ids=tokens()[:, 6:], **cache).logits
    torch.testing.assert_close(rest, whole[:, 6:], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "cache"),
    [
        ("gpt2", {"use_cache": False}),
        ("llama", {"cache_implementation": "static"}),
        ("mistral", {}),
    ],
)
def test_generation_gives_the_same_tokens(name: str, cache: dict[str, Any]) -> None:
    model = build(name)
    given = inputs(name, model, "left")
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0} | cache
    found, expected = (m.generate(**given, **options) for m in (swapped(model), model))
    assert torch.equal(found, expected)


@pytest.mark.parametrize("name", ["gpt2", "llama", "cohere", "phi"])
def test_cached_decoding_equals_the_whole_after_training(name: str) -> None:
    model = swapped(build(name))
    randomise(model)
    given = inputs(name, model)
    whole = model(**given).logits
    first = model(given["input_ids"][:, :6], use_cache=True)
    cache = with_cache(model, first.past_key_values)
    rest = model(given["input_ids"][:, 6:], **cache).logits
    torch.testing.assert_close(rest, whole[:, 6:], rtol=1e-4, atol=1e-4)


def test_attention_that_is_more_than_softmax_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial finds the other computation, and leaves the module unchanged."""
    model = build("llama", "eager").train()
    forward = hf.models.llama.modeling_llama.eager_attention_forward

    def sharpened(*args: Any, **kwargs: Any) -> Any:
        return forward(*args, **kwargs | {"scaling": 2 * kwargs["scaling"]})

    monkeypatch.setattr(hf.models.llama.modeling_llama, "eager_attention_forward", sharpened)
    before = {name: vars(module).copy() for name, module in model.named_modules()}
    with pytest.raises(NasError, match="LlamaAttention does more than softmax attention"):
        swap_attention(model, "qana")
    assert {name: vars(module) for name, module in model.named_modules()} == before
