"""The probe tells mechanisms that say nothing, or too much, from all others."""

from __future__ import annotations

import math
import runpy
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from nas.common.errors import NasWarning
from nas.compiler import build_attention, make_plan
from nas.genome import ModelSizes
from nas.store.sources import load_genome
from nas.training.dependence import (
    TOLERANCE,
    TOLERANCE_32,
    Constant,
    LastTokens,
    Leak,
    Stack,
    probe,
)
from nas.training.user_check import check_user_module
from nas.training.user_module import UserModule
from tests.genomes import build

SIZES = ModelSizes(32, 8, 2, 16)
DOCS = Path(__file__).parents[2] / "docs"
FINDS = sorted([*DOCS.glob("genomes/*.json"), *DOCS.glob("finds/*_*.py")])


def block_of(genome):
    return build_attention(genome, SIZES.dim, SIZES.heads)


@pytest.mark.parametrize("path", FINDS, ids=lambda path: path.name)
def test_probe_passes_every_find(path):
    """``nas.testing`` probes the named mechanisms; a file is probed by gradients, too."""
    if path.suffix == ".json":
        genome = load_genome(str(path))
        block, is_causal = block_of(genome), not make_plan(genome).unsafe
    else:
        block, is_causal = runpy.run_path(str(path))["Attention"](SIZES.dim, SIZES.heads), True
    before = {key: value.clone() for key, value in block.state_dict().items()}
    probe(block, SIZES, is_causal=is_causal)
    assert all(torch.equal(value, before[key]) for key, value in block.state_dict().items())


def test_probe_finds_a_legal_mechanism_that_is_always_zero():
    always = build(("distance", "qk"), ("relu_squared", [0]), ("weighted_sum", [1, "v"]))
    with pytest.raises(Constant, match="same output for every input"):
        probe(block_of(always), SIZES, is_causal=False)


class Block(nn.Module):
    """A formula of the tokens and one weight, in place of attention."""

    def __init__(self, form, weight=0.0):
        super().__init__()
        self.form, self.weight = form, nn.Parameter(torch.as_tensor(weight))

    def forward(self, x, is_causal=False):
        return self.form(x, self.weight)


def routed(x, _):
    """Each feature goes to the four tokens of the sequence that have the most of it."""
    return torch.zeros_like(x).scatter(1, x.topk(4, dim=1).indices, 1.0) * x + x


def convolved(x, _):
    """A circular convolution: the end of the sequence reaches its beginning."""
    kernel = torch.exp(-torch.arange(x.shape[1], dtype=x.dtype))
    spectrum = torch.fft.rfft(kernel)[:, None] * torch.fft.rfft(x, dim=1)
    return torch.fft.irfft(spectrum, n=x.shape[1], dim=1)


def mean(x, _=None):
    return x.mean(dim=1, keepdim=True).expand_as(x)


def of_blocks(function):
    """Apply a function to each block of eight tokens."""
    return lambda x, _: torch.cat([function(block) for block in x.split(8, dim=1)], dim=1)


def next_of_odd(x, _):
    is_odd = torch.arange(x.shape[1])[:, None] % 2 == 1
    return x + torch.where(is_odd, x.roll(-1, dims=1), 0.0)


LEAKS = {
    "mean": mean,
    "next": lambda x, _: x.roll(-1, dims=1),
    "moving mean": lambda x, _: nn.functional.avg_pool1d(x.mT, 3, 1, 1).mT,
    "mean of a block": of_blocks(lambda x: x + mean(x)),
    "norm of a block": of_blocks(lambda x: x / x.norm(dim=1, keepdim=True)),
    "local attention": of_blocks(lambda x: torch.softmax(x @ x.mT, dim=-1) @ x),
    "closed gate": lambda x, weight: x + torch.sigmoid(weight - 22.0) * mean(x),
    "no gradient": lambda x, _: x + x.detach().flip(1),
    "next of odd tokens": next_of_odd,
    "standardised": lambda x, _: (x - mean(x)) / x.std(dim=1, keepdim=True),
    "routed": routed,
    "convolved": convolved,
}


@pytest.mark.parametrize("name", LEAKS)
def test_probe_finds_a_planted_leak(name):
    probe(Block(LEAKS[name]), SIZES, is_causal=False)
    with pytest.raises(Leak, match="depends on later tokens"):
        probe(Block(LEAKS[name]), SIZES, is_causal=True)


def test_gradients_find_the_leaks_that_change_outputs_little():
    """The output of every token is rounded; the gradient passes straight through."""
    rounded = Block(lambda x, _: x.round() + (x.mean(1, True) - x.mean(1, True).detach()))
    with pytest.raises(Leak, match="depends on later tokens"):
        probe(rounded, SIZES, is_causal=True)


def test_probe_finds_leaks_of_trained_blocks_on_their_own_tokens():
    """Large tokens switch the leak on; it needs many examples, or a block that was trained."""
    tokens = 5 * torch.randn(64, SIZES.tokens, SIZES.dim, generator=torch.manual_seed(0))
    later = {
        "large tokens": lambda x, _: x + (x.abs().max() > 9.0) * x.mean(dim=1, keepdim=True),
        "many examples": lambda x, _: x + (len(x) > 16) * x.mean(dim=0),
    }
    for leak in later.values():
        probe(Block(leak), SIZES, is_causal=True)
        with pytest.raises(Leak):
            probe(Block(leak), SIZES, is_causal=True, tokens=tokens)


def test_user_is_told_that_a_module_does_not_compute_in_float64():
    text = "from torch import nn\nclass M(nn.Linear):\n"
    text += "    def __init__(self, dim, heads): super().__init__(dim, dim)\n"
    check_user_module(UserModule("m.py", "M", text), SIZES, is_causal=True)
    text += "    def forward(self, x): return super().forward(x.float())\n"
    with pytest.warns(NasWarning, match=r"m\.py:M: does not compute in float64; .* above 1e-05 of"):
        check_user_module(UserModule("m.py", "M", text), SIZES, is_causal=True)


def test_last_tokens_are_those_of_the_last_largest_batch_of_evaluations():
    block = Block(lambda x, _: x)
    last, x = LastTokens(block), torch.ones(2, 3, 4)
    block.eval()(3 * x)
    block(x)
    block(x[:1])
    block.train()(2 * x)
    assert last.tokens is x


NEXT_IF: dict[str, Any] = {  # a path for some calls, whose author forgot the mask
    "pairs": lambda x, weight: (torch.arange(x.shape[1]) % 2 == 1)[:, None],
    "float32": lambda x, weight: x.dtype is torch.float32,
    "float32, some": lambda x, weight: (
        1.0 * (torch.arange(x.shape[1]) % 5 == 1)[:, None] * (x.dtype is torch.float32)
    ),
    "positive weight": lambda x, weight: (0.01 + weight).sqrt(),
}


@pytest.mark.parametrize("name", NEXT_IF)
def test_probe_finds_a_path_of_long_sequences_of_float32_or_with_positive_weights(name):
    later = Block(lambda x, weight: x + NEXT_IF[name](x, weight) * x.roll(-1, dims=1))
    with pytest.raises(Leak, match="depends on later tokens"):
        probe(later, ModelSizes(32, 8, 2, 128), is_causal=True)


def rounded(x, _):
    """The four features of each token that are the largest after the rounding of a long sum."""
    total = 1e5 * x.sum(dim=1, keepdim=True)
    largest = (x + total - total).topk(4, dim=2).indices
    return x + torch.zeros_like(x).scatter(2, largest, 1.0)


def test_probe_in_many_batches_spares_a_share_of_all_changes_that_float32_rounds(monkeypatch):
    monkeypatch.setattr("nas.training.dependence.PAIRS", 1)
    torch.manual_seed(1)
    assert probe(Block(rounded), SIZES, is_causal=True) == TOLERANCE


def convolved_in_float32(x, _):
    """A causal convolution, whose end changes its beginning by the rounding of float32."""
    kernel = torch.exp(-torch.arange(x.shape[1], dtype=torch.float32))
    both = kernel[None, :, None], x.float()
    spectra = (torch.fft.rfft(y, n=2 * len(kernel), dim=1) for y in both)
    return torch.fft.irfft(math.prod(spectra), dim=1)[:, : len(kernel)].to(x.dtype)


def test_probe_passes_a_sequence_of_one_token():
    one = ModelSizes(SIZES.dim, SIZES.heads, 2, 1)
    assert probe(Block(lambda x, weight: x + weight), one, is_causal=True) == TOLERANCE


def test_probe_of_a_block_that_computes_in_float32_has_the_tolerance_of_float32():
    assert probe(Block(convolved_in_float32), SIZES, is_causal=True) == TOLERANCE_32
    kept = Block(lambda x, weight: x + weight * kept.maps["last"][0])
    kept.maps = {"last": [nn.Parameter(torch.ones(())) * 2]}  # as of an earlier call
    assert probe(kept, SIZES, is_causal=True) == TOLERANCE


class Shared(nn.Module):
    """A layer that adds what the first of its model keeps."""

    def __init__(self, form, kept):
        super().__init__()
        self.linear, self.form = nn.Linear(32, 32), form
        self.kept, self.is_first = kept, not kept
        kept.append(None)

    def forward(self, x, padding=None):
        if self.is_first:
            self.kept[0] = self.form(self.linear(x))
        return x + self.kept[0]


@pytest.mark.parametrize("form", [lambda x: x, lambda x: x.roll(-1, dims=1)])
def test_layers_that_share_their_values_are_probed_together(form):
    kept = []
    stack = Stack([Shared(form, kept), Shared(form, kept)])
    with pytest.raises(Leak) if form(torch.arange(2)[None])[0, 0] else nullcontext():
        probe(stack, SIZES, is_causal=True)


def test_probe_finds_padding_behind_a_closed_gate():
    class Gated(Block):
        def forward(self, x, key_padding_mask=None):
            return x + self.weight * mean(x)

    with pytest.raises(Leak, match="padding"):
        probe(Gated(mean), SIZES, is_causal=False, is_padded=True)


@pytest.mark.parametrize(
    "leak",
    [
        lambda x, _: x + x.mean(dim=0, keepdim=True),
        lambda x, _: x.roll(1, dims=0),
        lambda x, _: x + x[2:].sum(dim=0),
    ],
)
def test_probe_finds_what_mixes_examples(leak):
    with pytest.raises(Leak, match="other examples"):
        probe(Block(leak), SIZES, is_causal=True)
