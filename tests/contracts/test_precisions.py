"""Every named mechanism in every precision and form: right, or refused with a sentence."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn

from nas.common.errors import NasError
from nas.compiler import build_attention, plain_source
from nas.genome.mechanisms import MECHANISMS
from nas.surgery import swap_attention

DIM, HEADS, TOKENS = 48, 4, 20
# Largest error in an output, as a fraction of the largest output.
PRECISIONS = {"float32": 1e-4, "bfloat16": 0.1, "float16": 0.02, "autocast": 0.1, "meta": 0.0}


def swapped(name: str) -> nn.Module:
    """A language model of two layers whose input is the embeddings."""
    sizes = {"hidden_size": DIM, "num_attention_heads": HEADS, "num_key_value_heads": HEADS}
    config = hf.LlamaConfig(vocab_size=8, num_hidden_layers=2, intermediate_size=48, **sizes)
    model = hf.LlamaModel(config)
    swap_attention(model, name, preserve=False)
    return model


def exported(name: str) -> nn.Module:
    scope: dict[str, Any] = {"__name__": "exported"}
    exec(plain_source(MECHANISMS[name].genome, DIM, HEADS), scope)
    module: nn.Module = scope["Attention"]()
    return module


FORMS = {
    "interpreted": lambda name: build_attention(
        MECHANISMS[name].genome, DIM, HEADS, reference=True
    ),
    "built": lambda name: build_attention(MECHANISMS[name].genome, DIM, HEADS),
    "exported": exported,
    "swapped": swapped,
}


def call(module: nn.Module, x: Tensor, is_padded: bool) -> Tensor:
    """Return the output; the last tokens of the first sequence are padding if ``is_padded``."""
    padding = torch.zeros(len(x), TOKENS, dtype=torch.bool, device=x.device)
    padding[0, -5:] = is_padded
    if isinstance(module, hf.LlamaModel):
        # transformers makes a mask of its own on no meta device.
        mask = torch.ones(len(x), 1, TOKENS, TOKENS, dtype=torch.bool, device=x.device).tril()
        mask &= ~padding[:, None, None]
        answer = module(inputs_embeds=x, attention_mask=mask, use_cache=False)
        result: Tensor = answer.last_hidden_state
    else:
        result = module(x, key_padding_mask=padding if is_padded else None)
    return result


@pytest.mark.slow
@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", MECHANISMS)
def test_outputs_are_right_or_refused_in_every_precision(
    name: str, form: str, is_padded: bool
) -> None:
    torch.manual_seed(0)
    try:
        module = FORMS[form](name).eval()
    except NasError:
        return  # a sentence
    x = torch.randn(2, TOKENS, DIM)
    with torch.no_grad():
        expected = call(deepcopy(module).double(), x.double(), is_padded)
        for precision, tolerance in PRECISIONS.items():
            if precision == "autocast":
                with torch.autocast("cpu", torch.bfloat16):
                    out = call(module, x, is_padded)
            elif precision == "meta":
                assert call(deepcopy(module).to("meta"), x.to("meta"), is_padded).shape == x.shape
                continue
            else:
                dtype = getattr(torch, precision)
                out = call(deepcopy(module).to(dtype), x.to(dtype), is_padded)
                assert out.dtype is dtype
            error = (out - expected).abs().max() / expected.abs().max()
            assert error <= tolerance, f"{precision}: {error:.2g}"
