"""What the task of every family promises to those who train and search on it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from nas.tasks import load_task

CPU = torch.device("cpu")
TASKS = {
    "images": ("vit-cifar10", {"data": "digits", "image_size": 8, "train_images": 60,
                               "validation_images": 40, "curve_images": 12, "width": 16}),
    "recall": ("recall", {"num_keys": 9, "num_values": 4, "pairs": 4, "train_examples": 20,
                          "validation_examples": 12, "curve_examples": 5, "width": 16}),
    "induction": ("induction", {"num_keys": 3, "pairs": 5, "train_examples": 20, "width": 16,
                                "validation_examples": 12, "curve_examples": 5}),
    "copying": ("copying", {"symbols": 3, "noise": 5, "train_examples": 20, "width": 16,
                            "validation_examples": 12, "curve_examples": 5}),
    "bytes": ("bytes", {"length": 16, "train_examples": 20, "validation_examples": 12,
                        "curve_examples": 5, "width": 16, "init_std": 0.02}),
    "texts": ("text-classification", {"length": 16, "train_examples": 30, "validation_examples": 12,
                                      "curve_examples": 5, "width": 16}),
}  # fmt: skip


class Mean(nn.Module):
    """Stands where attention stands: the mean of what a token sees."""

    def forward(self, x, is_causal=False, key_padding_mask=None):
        if key_padding_mask is not None:
            x = x.masked_fill(key_padding_mask.unsqueeze(2), 0.0)
        if not is_causal:
            return x.mean(dim=1, keepdim=True).expand_as(x)
        count = torch.arange(1, x.shape[1] + 1).view(1, -1, 1)
        return x.cumsum(dim=1) / count


@pytest.fixture(params=TASKS)
def task(request):
    name, overrides = TASKS[request.param]
    return load_task(name, overrides=overrides)


@pytest.fixture
def data(task):
    return task.load()


def test_data_are_disjoint_sides_with_a_digest_of_their_content(task, data):
    again, other = task.load(), task.model_copy(update={"data_seed": 1}).load()
    assert again.digest == data.digest != other.digest
    for name, column in data.train.items():
        assert len(column) == data.count("train")
        assert np.array_equal(column, again.train[name])
    if task.kind == "bytes":  # one long text, whose own test says where it is cut
        return
    first, *_ = data.train
    assert data.train[first].dtype == data.validation[first].dtype
    train, held_out = ({r.tobytes() for r in side[first]} for side in (data.train, data.validation))
    assert not train & held_out


def test_orders_name_training_examples_and_repeat_under_a_seed(task, data):
    size = task.epoch_size(data)
    for epoch in (1, task.epochs):
        one, same = (task.order(data, epoch, torch.Generator().manual_seed(3)) for _ in range(2))
        assert torch.equal(one, same)
        assert len(one) == size
        assert task.kind == "bytes" or len(set(one.tolist())) == size  # its windows may overlap
        assert 0 <= one.min() <= one.max() < data.count("train")
        assert 1 <= task.judged(data, epoch) <= data.count("validation")
    assert task.judged(data, task.epochs) == data.count("validation")


def test_losses_and_scores_agree_and_start_near_chance(task, data):
    model = task.build_model(data, lambda _: Mean(), 0).eval()
    examples = task.examples(data, "validation", CPU, torch.float32)
    assert len(examples) == data.count("validation")
    metrics = {metric.name: metric for metric in task.metrics(data)}
    totals = torch.zeros(task.num_tallies, dtype=torch.float64)
    loss, targets, right = 0.0, 0, 0
    with torch.no_grad():
        for chosen in torch.arange(len(examples)).split(7):
            total, count = task.loss(model, examples.batch(chosen))
            loss, targets = loss + total.item(), targets + count.item()
            totals += task.tally(model, examples.batch(chosen))
            inputs, labels = examples.batch(chosen)
            right += int((model(inputs).argmax(-1) == labels).sum())
    scores = task.score(totals.tolist())
    assert set(scores) == set(metrics)
    assert scores["accuracy"] == right / targets
    if task.kind == "bytes":
        assert scores["bits_per_byte"] == pytest.approx(loss / targets / math.log(2), rel=1e-5)
        assert scores["bits_per_byte"] == pytest.approx(8, rel=0.1)
    else:
        assert scores["log_loss"] == pytest.approx(loss / targets, rel=1e-5)
        assert metrics["log_loss"].chance == pytest.approx(-math.log(metrics["accuracy"].chance))
        assert scores["log_loss"] == pytest.approx(metrics["log_loss"].chance, rel=0.3)
    for metric in metrics.values():
        is_better = metric.ideal > metric.chance
        assert is_better == (metric.direction == "max")


def test_models_of_a_seed_are_the_same_and_have_a_slot_a_layer(task, data):
    one, same, other = (task.build_model(data, lambda _: Mean(), seed) for seed in (0, 0, 1))
    weights = [torch.cat([p.flatten() for p in m.parameters()]) for m in (one, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert len(one.attentions()) == task.sizes.depth
    assert all(isinstance(block, Mean) for block in one.attentions())


def test_slots_see_tokens_of_the_sizes_that_the_task_names(task, data):
    seen = []

    class Seen(Mean):
        def forward(self, x, is_causal=False, key_padding_mask=None):
            seen.append((x.shape[1:], is_causal))
            return super().forward(x, is_causal, key_padding_mask)

    model = task.build_model(data, lambda _: Seen(), 0)
    task.loss(model, task.examples(data, "train", CPU, torch.float32).batch(torch.arange(2)))
    dim, _, depth, tokens = task.sizes
    assert seen == [((tokens, dim), task.is_causal)] * depth
