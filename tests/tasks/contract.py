"""What every task family promises, as functions that raise AssertionError for a broken promise."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nas.evaluation.trainer import LocalEvaluator
from nas.evaluation.trial import Trial, run_trials
from nas.genome.mechanisms import mechanism
from nas.tasks import Data, ModelTask, Task, parse_task

CPU = torch.device("cpu")


def check_task(task: ModelTask) -> None:
    """Check a small task, which is trained twice."""
    data = task.load()
    for promise in PROMISES:
        promise(task, data)


class Mean(nn.Module):
    """A substitute for attention that returns the mean of visible tokens and records its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[torch.Size, bool]] = []  # (tokens, features), and is_causal

    def forward(
        self, x: Tensor, is_causal: bool = False, key_padding_mask: Tensor | None = None
    ) -> Tensor:
        self.calls.append((x.shape[1:], is_causal))
        if key_padding_mask is not None:
            x = x.masked_fill(key_padding_mask.unsqueeze(2), 0.0)
        if not is_causal:
            return x.mean(dim=1, keepdim=True).expand_as(x)
        return x.cumsum(dim=1) / torch.arange(1, x.shape[1] + 1).view(1, -1, 1)


def has_a_fingerprint(task: Task, data: Data) -> None:
    """Saving and pickling keep the task and its fingerprint, which ignores name and description."""
    for again in (parse_task(task.to_dict(), "its copy"), pickle.loads(pickle.dumps(task))):
        assert again == task
        assert again.fingerprint() == task.fingerprint()
    renamed = task.model_copy(update={"name": "other", "about": "other"})
    assert renamed.fingerprint() == task.fingerprint()


def loads_the_same_data(task: Task, data: Data) -> None:
    again = task.load()
    assert again.digest == data.digest
    for side in ("train", "validation"):
        for name, column in getattr(data, side).items():
            assert np.array_equal(column, getattr(again, side)[name])


def trains_the_same_twice(task: Task, data: Data) -> None:
    """Standard attention trains without failure; a second training gives equal numbers."""
    resolved = task.resolve(mechanism("mha").genome)
    trial = Trial(resolved.key, resolved.genome, 0)
    evaluator = LocalEvaluator(task, data)
    first, second = (e for _ in range(2) for _, e in run_trials(evaluator, [trial]))
    evaluator.close()
    assert first.is_ok, first.error
    assert first.metrics == second.metrics
    metrics = task.metrics(data)
    assert sorted(first.metrics) == sorted(metric.name for metric in metrics)
    assert all((m.ideal > m.chance) == (m.direction == "max") for m in metrics)


def orders_its_examples(task: ModelTask, data: Data) -> None:
    """The order of an epoch has ``epoch_size`` examples, and is equal for equal seeds."""
    for epoch in (1, task.epochs):
        first, same = (task.order(data, epoch, torch.Generator().manual_seed(3)) for _ in range(2))
        assert torch.equal(first, same)
        assert len(first) == task.epoch_size(data)
        assert 0 <= int(first.min()) <= int(first.max()) < data.count("train")
        assert 1 <= task.num_eval_examples(data, epoch) <= data.count("validation")


def builds_models_from_the_seed(task: ModelTask, data: Data) -> None:
    """Equal seeds build equal models, with a slot for attention in each layer."""
    models: list[Any] = [task.build_model(data, lambda _: Mean(), seed) for seed in (0, 0, 1)]
    first, same, other = (torch.cat([p.flatten() for p in m.parameters()]) for m in models)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert [type(slot) for slot in models[0].attentions()] == [Mean] * task.sizes.depth


def calls_attention_at_its_sizes(task: ModelTask, data: Data) -> None:
    model: Any = task.build_model(data, lambda _: Mean(), 0)
    task.loss(model, task.examples(data, "train", CPU, torch.float32).batch(torch.arange(2)))
    for slot in model.attentions():
        expected = torch.Size((task.sizes.tokens, task.sizes.dim)), task.is_causal
        assert slot.calls == [expected]


def adds_up_over_batches(task: ModelTask, data: Data) -> None:
    """Losses and tallies add up, whatever the batch size; an untrained model is near chance."""
    (loss, targets, totals), other = (_evaluate(task, data, size) for size in (7, 5))
    assert targets == other[1]
    assert loss == pytest.approx(other[0], rel=1e-4)
    torch.testing.assert_close(totals, other[2], rtol=1e-4, atol=1e-4)
    metric, *_ = task.metrics(data)
    start = task.score(totals.tolist())[metric.name]
    assert (start - metric.chance) / (metric.ideal - metric.chance) <= 0.5


def _evaluate(task: ModelTask, data: Data, size: int) -> tuple[float, int, Tensor]:
    """Return loss, number of targets and tally of an untrained model in batches of ``size``."""
    model = task.build_model(data, lambda _: Mean(), 0).eval()
    examples = task.examples(data, "validation", CPU, torch.float32)
    assert len(examples) == data.count("validation")
    totals = torch.zeros(task.num_tallies, dtype=torch.float64)
    loss, targets = 0.0, 0
    with torch.no_grad():
        for chosen in torch.arange(len(examples)).split(size):
            total, count = task.loss(model, examples.batch(chosen))
            loss, targets = loss + float(total), targets + int(count)
            totals += task.tally(model, examples.batch(chosen))
    return loss, targets, totals


PROMISES: tuple[Callable[[Any, Data], None], ...] = (
    has_a_fingerprint,
    loads_the_same_data,
    trains_the_same_twice,
    orders_its_examples,
    builds_models_from_the_seed,
    calls_attention_at_its_sizes,
    adds_up_over_batches,
)
