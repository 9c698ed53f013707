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
from nas.genome import Genome, ModelSizes
from nas.genome.mechanisms import MECHANISMS
from nas.store.sources import load_genome
from tests.genomes import build
from tests.samples import samples
from tests.tensors import add_noise, draw

GENOMES = Path(__file__).parents[2] / "docs" / "genomes"
FINDS = {path.stem: load_genome(path) for path in sorted(GENOMES.glob("text_*.json"))}
NAMED = {name: entry.genome for name, entry in MECHANISMS.items()}
NAMED["convolution"] = build(("short_conv", ["v"]), has_wq=False, has_wk=False)
LONG_STATES = {"deltanet", "gated_deltanet", "kda", "hgrn", "hgrn2"}


def module_of(genome: Genome, dim: int = 16) -> Any:
    scope: dict[str, Any] = {}
    exec(file_source(class_sources(ExportRequest(genome, dim, heads=4, is_causal=True))), scope)
    return scope["Attention"]()


RANDOM = dict(enumerate(samples("attention_causal", 60)))


@pytest.mark.parametrize(
    ("genomes", "without"), [(NAMED, LONG_STATES), (FINDS, set()), (RANDOM, None)]
)
def test_outputs_of_tokens_after_a_cache_are_those_in_the_whole_text(
    genomes: dict[Any, Genome], without: set[str] | None
) -> None:
    cannot = set()
    for name, genome in genomes.items():
        block = module_of(genome).double().eval()
        if not hasattr(block, "decode"):
            cannot.add(name)
            continue
        add_noise(block, 0.3)
        x, cache = draw(2, 14, 16), dict[str, Tensor]()
        with torch.no_grad():
            parts = []
            for part in x.clone().split([1, 2, 6, 1, 1, 3], dim=1):
                parts.append(block.decode(part, cache))
                part.zero_()  # the cache does not hold a view of its inputs
            torch.testing.assert_close(
                torch.cat(parts, dim=1), block(x, is_causal=True), rtol=1e-9, atol=1e-9, msg=name
            )
    assert len(cannot) < 20 if without is None else cannot == without


@pytest.mark.parametrize("genome", [NAMED["rope"], NAMED["forgetting"], *FINDS.values()])
def test_cache_has_the_size_that_costs_state(genome: Genome) -> None:
    cache = dict[str, Tensor]()
    with torch.no_grad():
        module_of(genome, dim=64).decode(draw(1, 50, 64).float(), cache)
    context = CostContext(ModelSizes(64, 4, 8, 50))
    stated = kv_cache_bytes_per_token(resolve(genome, context.sizes, True).plan, context)
    assert 2 * sum(tensor.numel() for tensor in cache.values()) == pytest.approx(50 * stated)


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
        self.layers = nn.ModuleList(Layer(dim, module_of(genome, dim), is_modern) for _ in range(2))
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
