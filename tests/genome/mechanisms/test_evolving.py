"""The published champion and its controls: formulas, the published form, the published costs.

Checks E2, E3, E5 and E6.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas.compiler import build_attention
from nas.costs import attention_cost
from nas.genome import Genome, Projections
from nas.genome.canonical import canonicalise
from nas.genome.mechanisms import MECHANISMS
from tests.genome.test_genome import CHAMPION
from tests.genomes import build
from tests.tensors import add_noise, merged, split

DIM, HEADS = 24, 4


def drawn(name: str) -> tuple[nn.Module, Tensor, Tensor, Tensor]:
    """A block, its input, and that input projected by W_V and raw, both (b, h, n, d/h)."""
    torch.manual_seed(0)
    block = build_attention(MECHANISMS[name].genome, DIM, HEADS).double()
    add_noise(block, 0.5)
    x = torch.randn(2, 9, DIM, dtype=torch.float64)
    v, k = (split(t, DIM // HEADS) for t in (block.wv(x), x))
    return block, x, v, k


def test_the_champion_is_its_published_form() -> None:
    """E2: it round-trips, and there is nothing left to prune."""
    champion = Genome.from_dict(CHAMPION)
    assert MECHANISMS["champion_2025"].genome == champion
    assert champion.to_dict() == CHAMPION
    assert len(canonicalise(champion).nodes) == len(champion.nodes)


def test_the_champion_computes_its_equations() -> None:
    """E5: eqs. 1 to 3, head by head."""
    block, x, v, k = drawn("champion_2025")
    weights = torch.sigmoid(torch.einsum("bhqd,bhkd->bhqk", v, k) / math.sqrt(DIM // HEADS))
    norm = block.layer_norm_3.norm
    values = F.layer_norm(F.gelu(v), (DIM // HEADS,), norm.weight, norm.bias)
    expected = merged(block, torch.einsum("bhqk,bhkd->bhqd", weights, values))
    torch.testing.assert_close(block(x), expected, rtol=0.0, atol=1e-10)


def test_the_champions_control_is_standard_attention() -> None:
    block, x, v, k = drawn("champion_control")
    expected = merged(block, F.scaled_dot_product_attention(v, k, v))
    torch.testing.assert_close(block(x), expected, rtol=0.0, atol=1e-10)
    champion = build_attention(MECHANISMS["champion_2025"].genome, DIM, HEADS)
    for name in ("wv", "wo"):
        assert getattr(block, name).weight.shape == getattr(champion, name).weight.shape


def test_uniform_is_the_mean_of_the_values() -> None:
    block, x, v, _ = drawn("uniform")
    mean = v.mean(dim=2, keepdim=True).expand_as(v)
    torch.testing.assert_close(block(x), merged(block, mean), rtol=0.0, atol=1e-10)
    past = v.cumsum(dim=2) / torch.arange(1, 10)[:, None]
    torch.testing.assert_close(block(x, is_causal=True), merged(block, past), rtol=0.0, atol=1e-10)


class SeedOperations(nn.Module):
    """The published operations for one head, spelt as the published code spells them."""

    gelu = staticmethod(F.gelu)
    add, multiply, weighted_sum = map(staticmethod, (torch.add, torch.mul, torch.matmul))
    sigmoid = staticmethod(torch.sigmoid)

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = math.sqrt(width)
        self.conv = nn.Conv1d(width, width, 3, groups=width, padding="same")
        self.linear, self.layer_norm = nn.Linear(width, width), nn.LayerNorm(width)

    def scaled_dot_product(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.transpose(-2, -1) / self.scale

    def convolutional_score(self, q: Tensor, k: Tensor) -> Tensor:
        q, k = (self.conv(x[:, 0].transpose(1, 2)).transpose(1, 2)[:, None] for x in (q, k))
        return q @ k.transpose(-2, -1)

    def softmax(self, scores: Tensor) -> Tensor:
        return torch.softmax(scores, -1)


class SeedLayer(nn.Module):
    """The encoder layer whose FLOPs the published search minimised: pre-norm, all with biases."""

    def __init__(self, genome: Genome, dim: int) -> None:
        super().__init__()
        self.genome, self.operations = genome, SeedOperations(dim)
        projections = genome.projections
        flags = (projections.has_wq, projections.has_wk, projections.has_wv, projections.has_wo)
        self.maps = nn.ModuleList(nn.Linear(dim, dim) if has else nn.Identity() for has in flags)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(2))
        self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norms[0](x)
        known: dict[Any, Tensor] = {
            name: each(normed).unsqueeze(1) for name, each in zip("qkv", self.maps, strict=False)
        }
        for index, node in enumerate(self.genome.nodes):
            operation = getattr(self.operations, node.op)
            known[index] = operation(*(known[ref] for ref in node.inputs))
        x = x + self.maps[3](known[len(self.genome.nodes) - 1].squeeze(1))
        return x + self.ff(self.norms[1](x))


def plain_fvcore(module: nn.Module, x: Tensor) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from fvcore.nn import FlopCountAnalysis  # noqa: TID251 - what it says is the promise

        analysis = FlopCountAnalysis(module, (x,))
        return int(
            analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).total()
        )


GRAPHS = {
    "convolutional": (("convolutional_score", "qk"), ("softmax", [0]), ("weighted_sum", [1, "v"])),
    "values": (
        ("scaled_dot_product", "qk"),
        ("sigmoid", [0]),
        ("linear", "v"),
        ("layer_norm", [2]),
        ("gelu", "v"),
        ("multiply", [3, 4]),
        ("add", [5, "v"]),
        ("weighted_sum", [1, 6]),
    ),
}


@pytest.mark.parametrize("flags", ["1111", "0011"])
@pytest.mark.parametrize("name", [*GRAPHS, "champion"])
def test_costs_as_the_published_search_counted_them(name: str, flags: str) -> None:
    """E3: plain fvcore on the published layer, at its size; it misses much of attention."""
    graph = MECHANISMS["champion_2025"].genome if name == "champion" else build(*GRAPHS[name])
    found = replace(graph, projections=Projections(*(flag == "1" for flag in flags)))
    cost = attention_cost(found, dim=64, heads=1, tokens=65)
    counted = plain_fvcore(SeedLayer(found, 64).eval(), torch.randn(1, 65, 64))
    assert cost["seed_compatible_macs"] == counted
