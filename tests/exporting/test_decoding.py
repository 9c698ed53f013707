"""Exported classes continue a text from a cache, also in models like nanoGPT and nanochat."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas.compiler import resolve
from nas.compiler.inlining import file_source
from nas.costs import CostContext
from nas.costs.memory import kv_cache_bytes_per_token
from nas.exporting import ExportRequest
from nas.exporting.python_file import class_sources
from nas.genome import ALL, Genome, ModelSizes
from nas.genome.mechanisms import MECHANISMS
from nas.store.sources import load_genome
from tests.genomes import build
from tests.samples import samples
from tests.tensors import add_noise, draw

GENOMES = Path(__file__).parents[2] / "docs" / "genomes"
FINDS = {path.stem: load_genome(path) for path in sorted(GENOMES.glob("[!i]*.json"))}  # no images
NAMED = {name: entry.genome for name, entry in MECHANISMS.items()}
NAMED["convolution"] = build(("short_conv", ["v"]), has_wq=False, has_wk=False)
DECODED = NAMED | FINDS


def module_of(genome: Genome, dim: int = 16, name: str = "Attention") -> Any:
    scope: dict[str, Any] = {}
    exec(file_source(class_sources(ExportRequest(genome, dim, heads=4), decodes=True)), scope)
    return scope[name]()


def decoded(block: Any, x: Tensor, sizes: list[int]) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the outputs of a text's parts, which have these numbers of tokens, and the cache."""
    cache, parts = dict[str, Tensor](), []
    with torch.no_grad():
        for part in x.clone().split(sizes, dim=1):
            parts.append(block.decode(part, cache))
            part.zero_()  # the cache does not hold a view of its inputs
    return torch.cat(parts, dim=1), cache


def check(genome: Genome, *parts: list[int]) -> None:
    block, x = module_of(genome).double().eval(), draw(2, sum(parts[0]), 16)
    add_noise(block, 0.3)
    expected = block(x, is_causal=True).detach()
    for sizes in parts:
        torch.testing.assert_close(decoded(block, x, sizes)[0], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("genome", DECODED.values(), ids=DECODED)
def test_a_text_is_decoded_whole_in_parts_and_token_by_token(genome: Genome) -> None:
    check(genome, [50], [10, 1, 1, 5, 33], [1] * 50)


@pytest.mark.parametrize("space", ["attention_causal", "linear_causal"])
def test_random_mechanisms_are_decoded(space: str) -> None:
    for genome in samples(space, 60):
        check(genome, [1, 2, 6, 1, 1, 3])


# The three others cache more than they need.
@pytest.mark.parametrize("name", sorted(DECODED.keys() - {"mla", "sw_sqa", "flex_sqa"}))
def test_cache_has_the_size_that_costs_state(name: str) -> None:
    block, context = module_of(DECODED[name], 64).bfloat16(), CostContext(ModelSizes(64, 4, 8, 100))
    _, cache = decoded(block, draw(1, 100, 64).bfloat16(), [100])
    stated = kv_cache_bytes_per_token(resolve(DECODED[name], context.sizes, True).plan, context)
    assert sum(x.nbytes for x in cache.values()) == pytest.approx(100 * stated)


CONSTANT = ["linear", "retnet", "gla", "mamba2", "deltanet", "gated_deltanet", "kda", "hgrn"]
CONSTANT += ["hgrn2", "based", "rebased", "uniform", "hybrid_1d8d5786"]


@pytest.mark.parametrize("name", CONSTANT)
def test_states_have_32_bits_and_do_not_grow(name: str) -> None:
    check(DECODED[name], [140, 1, 9])  # in chunks
    block, numbers = module_of(DECODED[name]).bfloat16(), set()
    for tokens in (9, 40):
        out, cache = decoded(block, draw(1, tokens, 16).bfloat16(), [tokens - 5, 5])
        assert out.dtype == torch.bfloat16
        assert {x.dtype for key, x in cache.items() if key.startswith("state")} == {torch.float32}
        numbers.add(sum(x.numel() for x in cache.values()))
    assert len(numbers) == 1


class Layer(nn.Module):
    """A layer of nanoGPT, or of nanochat: norms without weights, ReLU squared, no biases."""

    def __init__(self, dim: int, attention: nn.Module, is_modern: bool) -> None:
        super().__init__()
        norm = (lambda: nn.RMSNorm(dim, elementwise_affine=False)) if is_modern else None
        self.norms = nn.ModuleList((norm or (lambda: nn.LayerNorm(dim)))() for _ in range(2))
        self.attention = attention
        self.up = nn.Linear(dim, 4 * dim, bias=not is_modern)
        self.down = nn.Linear(4 * dim, dim, bias=not is_modern)
        self.activation = (lambda x: F.relu(x).square()) if is_modern else F.gelu

    def forward(self, x: Tensor, attend: Callable[[Tensor], Tensor]) -> Tensor:
        x = x + attend(self.norms[0](x))
        return x + self.down(self.activation(self.up(self.norms[1](x))))


class Model(nn.Module):
    """A model of bytes with the attention of an exported file in each layer."""

    def __init__(self, genome: Genome, is_modern: bool, dim: int = 32) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, dim)
        self.places = None if is_modern else nn.Embedding(64, dim)
        kinds = "Attention", "Attention" if genome.placement == ALL else "StandardAttention"
        modules = (module_of(genome, dim, kind) for kind in kinds)
        self.layers = nn.ModuleList(Layer(dim, module, is_modern) for module in modules)
        self.head = nn.Linear(dim, 256, bias=False)

    def forward(
        self, text: Tensor, caches: list[dict[str, Tensor]] | None = None, start: int = 0
    ) -> Tensor:
        x = self.bytes(text)
        if self.places is not None:
            x = x + self.places(torch.arange(start, start + text.shape[1]))
        for index, layer in enumerate(self.layers):
            attention: Any = layer.attention
            if caches is None:
                x = layer(x, lambda y, a=attention: a(y, is_causal=True))
            else:
                x = layer(x, lambda y, a=attention, c=caches[index]: a.decode(y, c))
        return self.head(x)


@pytest.mark.parametrize("is_modern", [False, True], ids=["nanoGPT", "nanochat"])
@pytest.mark.parametrize("genome", FINDS.values(), ids=FINDS)
def test_models_train_and_generate_with_finds_as_attention(genome: Genome, is_modern: bool) -> None:
    torch.manual_seed(0)
    model = Model(genome, is_modern).double()
    text = torch.randint(256, (2, 12))
    logits = model(text)
    F.cross_entropy(logits[:, :-1].flatten(0, 1), text[:, 1:].flatten()).backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.layers.parameters())
    whole, caches, new, start = text, [{}, {}], text, 0
    with torch.no_grad():
        for _ in range(8):
            last = model(new, caches, start)[:, -1]
            torch.testing.assert_close(last, model(whole)[:, -1])
            new, start = last.argmax(dim=-1, keepdim=True), whole.shape[1]
            whole = torch.cat((whole, new), dim=1)
