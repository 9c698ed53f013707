"""A conventional PyTorch training loop on images, the reference for our evaluation.

Model and recipe are those of the task published-proxy: pre-norm layers, a class token, learned
positions, AdamW, cross entropy, float32. No computing code of this package is used. Images are
decoded and normalised one by one as in the published code (``PerImage``), or come from one prepared
tensor (``Preloaded``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nas.tasks import Data, Side
    from nas.tasks.images import ImageTask

Batches = Iterable[tuple[Tensor, Tensor]]
Transform = Callable[[Image.Image], Tensor]


class Transformer(nn.Module):
    """The model of published-proxy: images (b, channels, size, size) to logits (b, classes)."""

    def __init__(self, task: ImageTask, channels: int, num_classes: int) -> None:
        super().__init__()
        dim, _, depth, tokens = task.sizes
        assert (task.final_norm, task.feed_forward) == (False, "relu")
        self.embed = nn.Conv2d(channels, dim, task.patch, task.patch)
        self.class_token = nn.Parameter(torch.randn(1, 1, dim) * task.init_std)
        self.positions = nn.Parameter(torch.randn(1, tokens, dim) * task.init_std)
        self.layers = nn.Sequential(*(Layer(task) for _ in range(depth)))
        self.head = nn.Linear(dim, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.embed(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(images), -1, -1), tokens], dim=1)
        return self.head(self.layers(x + self.positions)[:, 0])


class Layer(nn.Module):
    """Attention and a feed-forward network with residual connections: (b, n, d) to (b, n, d)."""

    def __init__(self, task: ImageTask) -> None:
        super().__init__()
        dim, self.heads, _, _ = task.sizes
        hidden = round(dim * task.mlp_ratio)
        self.query, self.key, self.value = (
            nn.Linear(dim, dim, bias=task.qkv_bias) for _ in range(3)
        )
        self.out = nn.Linear(dim, dim)
        self.attention_norm, self.mlp_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, dim))
        self.dropout = nn.Dropout(task.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        return x + self.dropout(self.mlp(self.mlp_norm(x)))

    def attention(self, x: Tensor) -> Tensor:
        """Return explicit attention, which at 65 tokens is no slower than the fused function."""
        query, key, value = (
            stream(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for stream in (self.query, self.key, self.value)
        )
        scores = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5
        return self.out((torch.softmax(scores, dim=-1) @ value).transpose(1, 2).flatten(2))


class PerImage(Dataset[tuple[Tensor, int]]):
    """Images as in torchvision's data sets: one PIL image and one transform each."""

    def __init__(self, data: Data, side: Side, transform: Transform) -> None:
        images, self.labels = _side(data, side)
        self.images = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
        self.transform = transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        # Grey images are two-dimensional in PIL.
        pixels = self.images[index].squeeze()
        return self.transform(Image.fromarray(pixels)), int(self.labels[index])


class Preloaded:
    """Batches of normalised images from one tensor, in random order if ``shuffle``."""

    def __init__(self, data: Data, side: Side, batch_size: int, *, shuffle: bool) -> None:
        images, labels = _side(data, side)
        mean, std = (
            torch.tensor(v).view(-1, 1, 1) for v in (data.facts["mean"], data.facts["std"])
        )
        self.images = (torch.tensor(images).float() - mean) / std
        self.labels = torch.tensor(labels)
        self.batch_size, self.shuffle = batch_size, shuffle

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        count = len(self.images)
        order = torch.randperm(count) if self.shuffle else torch.arange(count)
        for indices in order.split(self.batch_size):
            yield self.images[indices], self.labels[indices]


def loaders(data: Data, batch_size: int) -> tuple[Batches, Batches]:
    """Return training and validation images through a DataLoader in this process."""
    mean, std = ([v / 255 for v in data.facts[name]] for name in ("mean", "std"))
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize(mean, std)])
    train, held_out = (PerImage(data, side, transform) for side in ("train", "validation"))
    return DataLoader(train, batch_size, shuffle=True), DataLoader(held_out, batch_size)


def preloaded(data: Data, batch_size: int) -> tuple[Batches, Batches]:
    """Return training and validation images from memory."""
    return (
        Preloaded(data, "train", batch_size, shuffle=True),
        Preloaded(data, "validation", batch_size, shuffle=False),
    )


def train(task: ImageTask, data: Data, batches: tuple[Batches, Batches], seed: int) -> float:
    """Train a model; return its accuracy on the validation images."""
    torch.manual_seed(seed)
    model = Transformer(task, data.train["images"].shape[1], len(data.facts["classes"]))
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=task.learning_rate, weight_decay=task.weight_decay
    )
    for _ in range(task.epochs):
        model.train()
        for images, labels in batches[0]:
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        right = sum(int((model(x).argmax(-1) == y).sum()) for x, y in batches[1])
    return right / data.count("validation")


def _side(data: Data, side: Side) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    columns = getattr(data, side)
    return columns["images"], columns["labels"]
