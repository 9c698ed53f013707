"""Promises of every task: data, metrics, training, models and losses."""

from __future__ import annotations

import math
import pickle
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from nas.evaluation.trainer import LocalEvaluator
from nas.evaluation.trial import Trial, run_trials
from nas.genome.mechanisms import mechanism
from nas.tasks import Data, ModelTask, Task, parse_task
from nas.testing.promises import Promise, keep, require, require_same

CPU: Final = torch.device("cpu")
MAX_START: Final = 0.5  # of the distance from chance to ideal, of an untrained model


def check_task(task: Task) -> None:
    """Check a small task, which is trained twice, against the promises of its family."""
    subject = f"the task {task.name!r} of {task.kind}"
    data = task.load()
    keep(subject, PROMISES, task, data)
    for name, (model_task, its_data) in task.models(data).items():
        keep(f"{subject}{f', {name},' if name else ''}", MODEL_PROMISES, model_task, its_data)


class Mean(nn.Module):
    """A substitute for attention that returns the mean of visible tokens and records its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[torch.Size, bool]] = []  # (tokens, features), and is_causal

    def forward(
        self, x: Tensor, is_causal: bool = False, key_padding_mask: Tensor | None = None
    ) -> Tensor:
        """Return the mean of the visible tokens at each token, (b, n, d) to (b, n, d)."""
        self.calls.append((x.shape[1:], is_causal))
        if key_padding_mask is not None:
            x = x.masked_fill(key_padding_mask.unsqueeze(2), 0.0)
        if not is_causal:
            return x.mean(dim=1, keepdim=True).expand_as(x)
        return x.cumsum(dim=1) / torch.arange(1, x.shape[1] + 1).view(1, -1, 1)


def has_a_fingerprint(task: Task, data: Data) -> None:
    """Saving and pickling keep the task and its fingerprint, which ignores name and description."""
    for again in (parse_task(task.to_dict(), "its copy"), pickle.loads(pickle.dumps(task))):  # noqa: S301
        require(again == task, "a copy differs")
        require(again.fingerprint() == task.fingerprint(), "a copy has another fingerprint")
    renamed = task.model_copy(update={"name": "other", "about": "other"})
    require(renamed.fingerprint() == task.fingerprint(), "its name changes its fingerprint")


def loads_the_same_data(task: Task, data: Data) -> None:
    """Loading twice gives equal data, with equal digests."""
    again = task.load()
    require(again.digest == data.digest, f"digests {again.digest} and {data.digest}")
    for side in ("train", "validation"):
        for name, column in getattr(data, side).items():
            is_same = np.array_equal(column, getattr(again, side)[name])
            require(is_same, f"the column {name} of {side} differs")


def names_its_metrics(task: Task, data: Data) -> None:
    """The ideal of each metric is better than its chance."""
    for metric in task.metrics(data):
        direction = "max" if metric.ideal > metric.chance else "min"
        finding = f"{metric.name}: ideal and chance contradict its direction"
        require(direction == metric.direction, finding)


def trains_the_same_twice(task: Task, data: Data) -> None:
    """The reference trains without failure; a second training gives equal numbers."""
    resolved = task.resolve(mechanism(task.main.reference).genome)
    trial = Trial(resolved.key, resolved.genome, 0)
    evaluator = LocalEvaluator(task, data)
    first, second = (e for _ in range(2) for _, e in run_trials(evaluator, [trial]))
    evaluator.close()
    require(first.is_ok, f"it failed: {first.error}")
    require(first.metrics == second.metrics, f"{first.metrics}, then {second.metrics}")
    names = sorted(metric.name for metric in task.metrics(data))
    require(sorted(first.metrics) == names, f"measured {sorted(first.metrics)}, declared {names}")


def orders_its_examples(task: ModelTask, data: Data) -> None:
    """The order of an epoch has ``epoch_size`` examples, and is equal for equal seeds."""
    size = task.epoch_size(data)
    for epoch in (1, task.epochs):
        first, same = (task.order(data, epoch, torch.Generator().manual_seed(3)) for _ in range(2))
        require(torch.equal(first, same), "one seed gives different orders")
        require(len(first) == size, f"{len(first)} examples, epoch_size says {size}")
        is_inside = int(first.min()) >= 0 and int(first.max()) < data.count("train")
        require(is_inside, "an index is out of range")
        number, most = task.num_eval_examples(data, epoch), data.count("validation")
        require(1 <= number <= most, f"{number} of {most} examples evaluate epoch {epoch}")


def builds_models_from_the_seed(task: ModelTask, data: Data) -> None:
    """Equal seeds build equal models, with a slot for attention in each layer."""
    models: list[Any] = [task.build_model(data, lambda _: Mean(), seed) for seed in (0, 0, 1)]
    first, same, other = (torch.cat([p.flatten() for p in m.parameters()]) for m in models)
    require(torch.equal(first, same), "two models of a seed differ")
    require(not torch.equal(first, other), "two seeds give equal models")
    slots = [type(slot) for slot in models[0].attentions()]
    require(slots == [Mean] * task.sizes.depth, f"{slots} for {task.sizes.depth} layers")


def calls_attention_at_its_sizes(task: ModelTask, data: Data) -> None:
    """Attention is called once in each layer, with inputs of the task's sizes."""
    model: Any = task.build_model(data, lambda _: Mean(), 0)
    task.loss(model, task.examples(data, "train", CPU, torch.float32).batch(torch.arange(2)))
    dim, _, _, tokens = task.sizes
    for slot in model.attentions():
        expected = [(torch.Size((tokens, dim)), task.is_causal)]
        require(slot.calls == expected, f"called with {slot.calls}; expected {expected}")


def adds_up_over_batches(task: ModelTask, data: Data) -> None:
    """Losses and tallies (sums behind metrics) add up over examples, whatever the batch size."""
    (loss, targets, totals), other = (_evaluate(task, data, size) for size in (7, 5))
    require(targets == other[1], f"{targets} targets, then {other[1]}")
    require(math.isclose(loss, other[0], rel_tol=1e-4), f"losses {loss:.6g} and {other[0]:.6g}")
    require_same(totals, other[2], "the tally", 1e-4)


def starts_no_better_than_chance(task: ModelTask, data: Data) -> None:
    """The first metric of an untrained model is near chance."""
    scores = task.score(_evaluate(task, data, 7)[2].tolist())
    metric, *_ = task.metrics(data)
    gap = (scores[metric.name] - metric.chance) / (metric.ideal - metric.chance)
    finding = (
        f"{metric.name} is {scores[metric.name]:.3g}, chance is declared as {metric.chance:.3g}"
    )
    require(gap <= MAX_START, finding)


def _evaluate(task: ModelTask, data: Data, size: int) -> tuple[float, int, Tensor]:
    """Return loss, number of targets and tally of an untrained model in batches of ``size``."""
    model = task.build_model(data, lambda _: Mean(), 0).eval()
    examples = task.examples(data, "validation", CPU, torch.float32)
    require(len(examples) == data.count("validation"), f"{len(examples)} validation examples")
    totals = torch.zeros(task.num_tallies, dtype=torch.float64)
    loss, targets = 0.0, 0
    with torch.no_grad():
        for chosen in torch.arange(len(examples)).split(size):
            total, count = task.loss(model, examples.batch(chosen))
            loss, targets = loss + float(total), targets + int(count)
            tally = task.tally(model, examples.batch(chosen))
            finding = f"a tally of {len(tally)} numbers, num_tallies says {task.num_tallies}"
            require(tally.shape == totals.shape, finding)
            totals += tally
    return loss, targets, totals


PROMISES: Final[tuple[Promise, ...]] = (
    has_a_fingerprint,
    loads_the_same_data,
    names_its_metrics,
    trains_the_same_twice,
)
MODEL_PROMISES: Final[tuple[Promise, ...]] = (
    orders_its_examples,
    builds_models_from_the_seed,
    calls_attention_at_its_sizes,
    adds_up_over_batches,
    starts_no_better_than_chance,
)
