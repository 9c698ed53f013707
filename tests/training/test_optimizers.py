"""AdamW equals torch's under torch's schedule bit for bit; Muon equals torch's Muon."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nas.tasks import load_task
from nas.tasks.layers import seeded
from nas.training.optimizers import ScheduledOptimizer, decay_of, rate_and_momentum

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


def optimizer(parameters, task):
    return ScheduledOptimizer(nn.ParameterList(parameters), task, STEPS)


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
    found = train(ours, optimizer(ours, task).step)
    expected = train(theirs, Torchs(theirs, task).step)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert torch.equal(found[2], weights(dtype)[2])  # no gradient, no decay


def test_weights_may_have_two_dtypes():
    both = [weights()[0], weights(torch.float64)[1], *weights()[2:]]
    found = train(both, optimizer(both, task_for()).step)
    for dtype, at in ((torch.float32, 0), (torch.float64, 1)):
        alone = weights(dtype)
        assert torch.equal(train(alone, optimizer(alone, task_for()).step)[at], found[at])


@pytest.mark.parametrize("steps", [1, 4, 135])
def test_schedule_equals_torchs(steps):
    task, parameters = task_for(), weights()
    torchs = Torchs(parameters, task, steps)
    for step in range(steps):
        group = torchs.optimizer.param_groups[0]
        assert rate_and_momentum(task, step, steps) == (group["lr"], group["betas"][0])
        torchs.step()
    assert rate_and_momentum(task_for("constant"), 1, steps) == (0.03, 0.9)


def test_warmdown_rises_stays_and_falls():
    rates = [rate_and_momentum(task_for("warmdown"), step, 100)[0] for step in range(100)]
    assert rates[:5] == pytest.approx([0.006, 0.012, 0.018, 0.024, 0.03])
    assert rates[5:60] == [0.03] * 55
    assert rates[60:] == pytest.approx([0.03 * (40 - step) / 40 for step in range(40)])


def test_muon_equals_torchs():
    """For wide, tall and square matrices, two of one shape; other weights are AdamW's."""
    shapes, results = ((4, 8), (8, 4), (4, 8), (6, 6)), []
    for is_ours in (True, False):
        with seeded(0):
            model = nn.Module()
            model.layers = nn.ModuleList(nn.Linear(n, m) for m, n in shapes)
            model.head = nn.Linear(3, 2)
        matrices = [layer.weight for layer in model.layers]
        rest = [layer.bias for layer in model.layers] + list(model.head.parameters())
        task = task_for("constant", optimizer="muon")
        ours = ScheduledOptimizer(model, task, STEPS)
        muon = torch.optim.Muon(matrices, lr=0.03, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
        theirs = [muon, Torchs(rest, task)]
        for number in range(STEPS):
            for weight in model.parameters():
                weight.grad = torch.cos(number + 3 * weight.detach())
            for each in [ours] if is_ours else theirs:
                each.step()
        results.append([weight.detach() for weight in (*matrices, *rest)])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-3)
    assert (results[0][0] - results[0][2]).abs().max() > 0.1
