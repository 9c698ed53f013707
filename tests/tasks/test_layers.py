"""The layers that all tasks share: outputs, random streams, dropout."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nas.genome.mechanisms import mechanism
from nas.tasks import load_task
from nas.tasks.images.model import VisionTransformer, patches, sines
from nas.tasks.layers import Dropout, Transformer, derive_seed, seeded
from nas.training.candidate import build_model


class Mixing(nn.Module):
    """Stands in for attention; initialised from ``draws`` random matrices."""

    def __init__(self, dim: int, draws: int = 1) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(dim, dim) for _ in range(draws))

    def forward(self, x):
        return sum(m(x) for m in self.maps) + x.mean(dim=1, keepdim=True)


def build(draws=1, seed=0, **overrides):
    task = load_task("vit-cifar10", overrides={"image_size": 8, "width": 16} | overrides)
    attention = lambda _: Mixing(task.width, draws)  # noqa: E731
    return VisionTransformer(task, attention, seed, 48, 7)


def test_sines_of_row_and_column():
    found, slow = sines(3, 8), 10_000**-0.5
    assert found.shape == (9, 8)
    expected = [
        wave(torch.tensor(angle))
        for axis in (2, 1)
        for wave in (torch.sin, torch.cos)
        for angle in (axis, axis * slow)
    ]
    torch.testing.assert_close(found[2 * 3 + 1], torch.stack(expected).float())
    assert len({tuple(line) for line in found.tolist()}) == 9


def rms(x, norm):
    return x / (x.square().mean(-1, keepdim=True) + torch.finfo(x.dtype).eps).sqrt() * norm.weight


ACTIVATIONS = {
    "relu": F.relu,
    "relu_squared": lambda x: x * F.relu(x),
    "swiglu": lambda x: F.silu(x[..., :32]) * x[..., 32:],
}


@pytest.mark.parametrize(
    "overrides",
    [
        {"feed_forward": "relu", "final_norm": False},
        {"feed_forward": "relu_squared", "positions": "none", "registers": 2},
        {"feed_forward": "swiglu", "norm": "rms", "pooling": "mean", "registers": 1},
    ],
)
def test_model_follows_its_docstring(overrides):
    model = build(depth=1, **overrides).double().eval()
    is_modern, is_rms = overrides["feed_forward"] != "relu", "norm" in overrides
    norm = rms if is_rms else lambda x, module: module(x)
    images = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    tokens = F.conv2d(images, model.embed.weight.view(16, 3, 4, 4), model.embed.bias, stride=4)
    tokens = tokens.flatten(2).transpose(1, 2)
    x = torch.cat([model.learned.expand(2, -1, -1), tokens], dim=1)
    x = x + (0 if model.positions is None else model.positions)
    (layer,) = model.layers
    assert (layer.first.bias is None, layer.second.bias is None) == (is_modern, is_modern)
    x = x + layer.attention(norm(x, layer.attention_norm))
    hidden = ACTIVATIONS[overrides["feed_forward"]](layer.first(norm(x, layer.mlp_norm)))
    x = x + layer.second(hidden)
    x = x if "final_norm" in overrides else norm(x, model.norm)
    read = x[:, 1:].mean(1) if "pooling" in overrides else x[:, 0]
    torch.testing.assert_close(model(patches(images, 4)), model.head(read))


def test_branches_with_zero_start_leave_tokens_unchanged():
    task = load_task("bytes", overrides={"zero_init": True, "feed_forward": "swiglu"})
    model = build_model(task.resolve(mechanism("mha").genome), task, task.load(), 0)
    for block in model.attentions():
        torch.nn.init.zeros_(block.wo.bias)
    x = torch.randn(1, 5, task.width)
    torch.testing.assert_close(model.transform(x), model.norm(x))


@pytest.mark.parametrize("name", ["recall-easy", "text-classification"])
def test_registers_change_no_position_that_is_read(name):
    """With attention that gives nothing, registers change no output."""
    outputs = []
    for registers in (0, 3):
        fields = {"registers": registers, "positions": "none", "depth": 1}
        task = load_task(name, overrides=fields)
        data = task.load()
        model = task.build_model(data, lambda _: Silent(), 0)
        with seeded(1):
            for weight in (model.embed.weight, model.head.weight):
                nn.init.normal_(weight)
            nn.init.zeros_(model.head.bias)
        batch = task.examples(data, "validation", torch.device("cpu"), torch.float32)
        outputs.append(model(batch.batch(torch.arange(4))[0]))
    torch.testing.assert_close(*outputs)


class Silent(nn.Module):
    def forward(self, x, **options):
        return torch.zeros_like(x)


@pytest.mark.parametrize("depth", [1, 2])
def test_reading_some_tokens_equals_reading_all(depth):
    task = load_task("vit-cifar10", overrides={"width": 16, "depth": depth})
    model = Transformer(task, lambda _: Mixing(16), 0).double()
    x, found = torch.randn(3, 9, 16, dtype=torch.float64), []
    for read in (slice(None), slice(2, 5)):
        model.zero_grad()
        out = model.transform(x, read)[:, 2:5] if read == slice(None) else model.transform(x, read)
        out.square().sum().backward()
        found.append([out.detach(), *(p.grad.clone() for p in model.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_initial_weights_do_not_depend_on_the_mechanism():
    one, other = (build(draws=draws).state_dict() for draws in (1, 4))
    assert all(torch.equal(one[name], other[name]) for name in one if ".attention." not in name)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_rate_and_mean(rate):
    with seeded(0):
        out = Dropout(rate)(torch.ones(333, 1001))
    assert (out == 0).float().mean().item() == pytest.approx(rate, abs=0.003)
    assert out.mean().item() == pytest.approx(1.0, abs=0.02)
    kept = out[out != 0]
    assert torch.all(kept == kept[0])


def test_derive_seed_differs_by_purpose_and_never_changes():
    assert derive_seed(0, "order") != derive_seed(0, "noise") != derive_seed(1, "noise")
    assert derive_seed(0, "order") == 692281616081327507
