"""Compare our evaluation of standard attention on tokens with a plain PyTorch loop.

Data in memory, model and recipe are the same: float32, one thread. The plain model uses torch's
causal attention, modules and optimiser. Our evaluation also counts costs, tests candidates for
constant outputs, and validates on some examples after each epoch but the last.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.evaluation import timed, train_ours
from benchmarks.figures import Figure, fastest, ratio
from nas.common.differences import mean_and_error
from nas.evaluation.trial import training_seed
from nas.tasks import Data, load_task
from nas.tasks.classification import IGNORE_INDEX

if TYPE_CHECKING:
    from nas.tasks import Examples, ModelTask

TASKS: Final = ("bytes", "recall", "induction")
CPU: Final = torch.device("cpu")


def sequences(options: argparse.Namespace) -> list[Figure]:
    """Return core-seconds of each implementation, with one seed per round."""
    figures = []
    for name in TASKS:
        task = load_task(name)
        data = task.load()
        forms = {"ours": partial(train_ours, task, data), "plain": partial(_plain, task, data)}
        taken, scores = timed(forms, options.seeds)
        metric = task.metrics(data)[0].name
        for form, values in scores.items():
            mean, error = mean_and_error(values)
            print(f"  {name:10} {form:6} {min(taken[form]):6.2f} core-seconds, "
                  f"{metric} {mean:.4f} ± {error or 0.0:.4f}")  # fmt: skip
        figures += [
            fastest(f"{name}: ours", taken["ours"], "core-seconds"),
            ratio(f"{name}: plain / ours", taken["plain"], taken["ours"]),
        ]
    return figures


def _plain(task: ModelTask, data: Data, seed: int) -> float:
    """Train and validate by a conventional loop; return the task's first metric."""
    seed = training_seed(0, "benchmark", seed)
    torch.manual_seed(seed)
    train, held_out = (task.examples(data, s, CPU, torch.float32) for s in ("train", "validation"))
    model = Plain(task, data)
    steps = task.epochs * -(-task.epoch_size(data) // task.batch_size)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=task.learning_rate, betas=(0.9, task.beta2),
        weight_decay=task.weight_decay,
    )  # fmt: skip
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, task.learning_rate, steps)
    order = torch.Generator().manual_seed(seed)
    for epoch in range(1, task.epochs + 1):
        for indices in task.order(data, epoch, order).split(task.batch_size):
            optimizer.zero_grad()
            loss(model, train, indices)[0].backward()
            if task.clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), task.clip)
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        rows = [loss(model, held_out, c) for c in torch.arange(len(held_out)).split(128)]
    total = sum(float(mean) * count for mean, count, _ in rows)
    correct, scored = (sum(int(row[i]) for row in rows) for i in (2, 1))
    totals = [float(correct), total, float(scored)]
    return task.score(totals)[task.metrics(data)[0].name]


def loss(model: nn.Module, examples: Examples, indices: Tensor) -> tuple[Tensor, int, int]:
    """Return mean loss over scored targets, their number, and the number of correct ones."""
    tokens, targets = examples.batch(indices)
    logits, targets = model(tokens).flatten(0, 1), targets.flatten()
    correct = (logits.argmax(-1) == targets).sum()
    mean = F.cross_entropy(logits, targets, ignore_index=IGNORE_INDEX)
    return mean, int((targets != IGNORE_INDEX).sum()), int(correct)


class Plain(nn.Module):
    """A causal transformer: tokens (b, n) to logits (b, n or fewer, classes)."""

    def __init__(self, task: ModelTask, data: Data) -> None:
        super().__init__()
        ours = task.build_model(data, lambda _: nn.Identity(), 0)
        self.read, self.shift = ours.read, ours.token_shift
        self.embed = nn.Embedding(ours.embed.num_embeddings, task.width)
        self.positions = nn.Parameter(torch.empty(task.sizes.tokens, task.width))
        self.layers = nn.Sequential(*(PlainLayer(task) for _ in range(task.depth)))
        self.norm = nn.LayerNorm(task.width)
        self.head = nn.Linear(task.width, ours.head.out_features)
        for weight in (self.embed.weight, self.positions):
            nn.init.normal_(weight, std=task.init_std)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        if self.shift:
            x = x + F.pad(x.roll(1, 2)[:, :-1], (0, 0, 1, 0))
        x = self.norm(self.layers(x + self.positions))
        return self.head(x[:, self.read])


class PlainLayer(nn.Module):
    """Attention and a feed-forward network with residual connections: (b, n, d) to (b, n, d)."""

    def __init__(self, task: ModelTask) -> None:
        super().__init__()
        dim, self.heads = task.width, task.heads
        hidden = round(dim * task.mlp_ratio)
        self.attention_norm, self.mlp_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.attention_norm(x)).chunk(3, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.mlp_norm(x))
