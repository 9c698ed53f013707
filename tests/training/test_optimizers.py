"""The optimiser equals torch's AdamW under torch's schedule, bit for bit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nas.tasks import load_task
from nas.training.optimizers import ScheduledAdamW, decay_of, rate_and_momentum

STEPS = 12


def task_for(schedule="one_cycle", **overrides):
    overrides |= {"schedule": schedule, "learning_rate": 0.03, "weight_decay": 0.1}
    return load_task("vit-cifar10", data="digits", overrides=overrides)


def weights(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    shapes = ((3, 4), (5,), ())
    return [nn.Parameter(torch.randn(s, generator=generator).to(dtype)) for s in shapes]


def train(parameters, step):
    """The weights after all steps; the last one never has a gradient."""
    for number in range(STEPS):
        for weight in parameters[:2]:
            weight.grad = torch.cos(number + 3 * weight.detach())
        step()
    return [weight.detach() for weight in parameters]


class Torchs:
    """torch's own classes."""

    def __init__(self, parameters, task, steps=STEPS):
        groups = {}
        for weight in parameters:
            groups.setdefault(decay_of(weight, task), []).append(weight)
        self.optimizer = torch.optim.AdamW(
            [{"params": own, "weight_decay": decay} for decay, own in groups.items()],
            lr=task.learning_rate,
            betas=(0.9, task.beta2),
            fused=True,
        )
        self.cycle = None
        if task.schedule == "one_cycle":
            self.cycle = torch.optim.lr_scheduler.OneCycleLR(
                self.optimizer, max_lr=task.learning_rate, total_steps=steps
            )

    def step(self):
        self.optimizer.step()
        if self.cycle:
            self.cycle.step()


@pytest.mark.parametrize(
    ("overrides", "dtype"),
    [
        ({}, torch.float32),
        ({"schedule": "constant"}, torch.float64),
        ({"decay": "matrices", "beta2": 0.9}, torch.float64),
    ],
)
def test_scheduled_adamw_equals_torchs(overrides, dtype):
    task, ours, theirs = task_for(**overrides), weights(dtype), weights(dtype)
    found = train(ours, ScheduledAdamW(ours, task, STEPS).step)
    expected = train(theirs, Torchs(theirs, task).step)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert torch.equal(found[2], weights(dtype)[2])  # no gradient, no decay


def test_weights_may_have_two_dtypes():
    both = [weights()[0], weights(torch.float64)[1], *weights()[2:]]
    found = train(both, ScheduledAdamW(both, task_for(), STEPS).step)
    for dtype, at in ((torch.float32, 0), (torch.float64, 1)):
        alone = weights(dtype)
        assert torch.equal(
            train(alone, ScheduledAdamW(alone, task_for(), STEPS).step)[at], found[at]
        )


@pytest.mark.parametrize("steps", [1, 4, 135])
def test_schedule_equals_torchs(steps):
    task, parameters = task_for(), weights()
    torchs = Torchs(parameters, task, steps)
    for step in range(steps):
        group = torchs.optimizer.param_groups[0]
        assert rate_and_momentum(task, step, steps) == (group["lr"], group["betas"][0])
        torchs.step()
    assert rate_and_momentum(task_for("constant"), 1, steps) == (0.03, 0.9)
