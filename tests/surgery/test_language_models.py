"""Mechanisms inside small language models with random weights: trained on bytes, then decoded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor

from nas.common.errors import GenomeError, NasError
from nas.genome.mechanisms import MECHANISMS
from nas.surgery import swap_attention
from tests.genomes import build as genome
from tests.surgery.helpers import DECODABLE, DOT, SOFTMAX, cores, with_cache
from tests.tensors import add_noise

TEXT = "abcdefghijklmnopqrstuvwxyz, " * 20
ENDS = {"bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0}


def build(kind: str, **options: Any) -> Any:
    torch.manual_seed(0)
    if kind == "gpt2":
        sizes: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
        config: Any = hf.GPT2Config(vocab_size=128, **ENDS, **sizes | options)
        return hf.GPT2LMHeadModel(config).eval()
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 64}
    return hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=128, **ENDS, **sizes | options)).eval()


TRAINED = (("qana", "llama"), ("without wq", "gpt2"))


def batch(seed: int) -> Tensor:
    places = torch.randint(0, 400, (8,), generator=torch.Generator().manual_seed(seed))
    return torch.stack([torch.tensor(list(TEXT[i : i + 32].encode())) for i in places])


def trained(model: Any, steps: int = 25) -> list[float]:
    """The loss of each step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(steps):
        loss = model.train()(batch(step), labels=batch(step)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    model.eval()
    return losses


@pytest.mark.parametrize(("name", "kind"), TRAINED)
def test_swapped_model_trains_and_generates_from_its_cache(name: str, kind: str) -> None:
    model = build(kind)
    names = swap_attention(model, DECODABLE[name], preserve=False)
    losses = trained(model)
    assert losses[-1] < 0.7 * losses[0]
    for at in names:
        is_unread = "q" not in {stream.name for stream in cores(model)[0].plan.streams}
        for label, parameter in model.get_submodule(at).named_parameters():
            is_seen = parameter.grad is not None and bool(parameter.grad.any())
            assert is_seen != (is_unread and label.split(".")[-2] in ("q", "q_proj")), label
    prompt = batch(0)[:2, :9]
    padded = torch.ones_like(prompt)
    padded[1, :3] = 0
    caches: list[dict[str, Any]] = [{}, {"cache_implementation": "static"}]
    for mask in (torch.ones_like(prompt), padded):
        given = {"attention_mask": mask, "max_new_tokens": 12, "do_sample": False}
        whole = model.generate(prompt, use_cache=False, **given)
        assert len(set(whole[0, 9:].tolist())) > 1
        for cache in caches:
            assert torch.equal(model.generate(prompt, **given, **cache), whole)


KINDS = (("gpt2", "sdpa"), ("llama", "sdpa"), ("llama", "eager"))
PLAIN_SUITE = ("flex", "rotated values", "without any", "alibi")


@pytest.mark.parametrize(
    ("name", "kind", "implementation"),
    [
        pytest.param(name, *KINDS[i % 3], marks=() if name in PLAIN_SUITE else pytest.mark.slow)
        for i, name in enumerate(DECODABLE)
    ],
)
def test_cached_decoding_equals_the_whole(name: str, kind: str, implementation: str) -> None:
    model = build(kind)
    model.set_attn_implementation(implementation)
    swap_attention(model, DECODABLE[name], preserve=False)
    model.double()
    add_noise(model, 0.2)
    with torch.no_grad():
        tokens = batch(1)[:2, :20]
        mask = torch.ones_like(tokens)
        mask[1, :4] = 0
        whole = model(tokens, attention_mask=mask).logits
        cache, parts = None, []
        for start, stop in ((0, 7), (7, 11), (11, 12), (12, 13), (13, 20)):
            found = model(
                tokens[:, start:stop],
                attention_mask=mask[:, :stop],
                position_ids=torch.arange(start, stop)[None],
                use_cache=True,
                **with_cache(model, cache),
            )
            cache = found.past_key_values
            parts.append(found.logits)
        changed = tokens.clone()
        changed[:, 12:] += 1
        earlier = model(changed, attention_mask=mask).logits
    seen = mask.bool()
    torch.testing.assert_close(torch.cat(parts, dim=1)[seen], whole[seen], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(earlier[:, 4:12], whole[:, 4:12], rtol=1e-9, atol=1e-9)
    assert (earlier[:, 12:] - whole[:, 12:]).abs().max() > 1e-3


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_pooled_copies_keep_a_models_outputs(kind: str) -> None:
    model, tokens = build(kind).double(), batch(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            width = 8 * (3 if "c_attn" in name else 1)
            if "c_attn" in name:  # (32,) 3 x 32: the heads of keys and values alike
                for part in parameter.chunk(3, dim=-1)[1:]:
                    heads = part.unflatten(-1, (4, 8))
                    heads.copy_(heads[..., :1, :].expand_as(heads).clone())
            elif any(one in name for one in ("k_proj", "v_proj")):
                heads = parameter.unflatten(0, (2, width))
                heads.copy_(heads[:1].expand_as(heads).clone())
        before = model(tokens).logits
        swap_attention(model, "mqa", preserve=False)
        torch.testing.assert_close(model(tokens).logits, before, rtol=1e-10, atol=1e-10)
        cache = model(tokens, use_cache=True).past_key_values
    assert cache.layers[0].keys.shape == cache.layers[0].values.shape == (8, 1, 32, 8)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_mechanisms_that_a_cache_cannot_decode_are_refused(kind: str) -> None:
    conv = genome(
        *(("short_conv", "k"), ("scaled_dot_product", ["q", 0])),
        *(("softmax", [1]), ("weighted_sum", [2, "v"])),
    )
    twice = genome(
        *(DOT, *SOFTMAX, ("scaled_dot_product", ["q", 2])),
        *(("softmax", [3]), ("weighted_sum", [4, "v"])),
    )
    model = build(kind)
    keys = model.state_dict().keys()
    for wanted, words in ((conv, "short_conv"), (twice, "weighted_sum_2")):
        with pytest.raises(GenomeError, match=f"cached keys and values of single tokens.* {words}"):
            swap_attention(model, wanted, preserve=False)
        assert not cores(model)
        assert model.state_dict().keys() == keys


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("name", MECHANISMS)
def test_padding_before_a_text_changes_nothing(name: str, kind: str) -> None:
    size = 128
    positions = {"n_positions": size} if kind == "gpt2" else {"max_position_embeddings": size}
    model = build(kind, **positions)
    try:
        swap_attention(model, name, preserve=False)
    except NasError:
        return  # a sentence
    model.double()
    tokens = torch.randint(0, 128, (2, 96), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(3.0)
        expected = model(tokens).logits
        padding = torch.zeros(2, 13, dtype=torch.long)
        mask = torch.cat([padding, torch.ones_like(tokens)], dim=1)
        places = (mask.cumsum(dim=1) - 1).clamp(min=0)
        padded = torch.cat([padding, tokens], dim=1)
        found = model(padded, attention_mask=mask, position_ids=places).logits[:, 13:]
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
