"""AdamW and its schedule follow the formulas of their papers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from nas.tasks import load_task
from nas.training.optimizers import ScheduledAdamW, decay_of

STEPS = 12


def task_for(schedule="one_cycle", **overrides):
    overrides |= {"schedule": schedule, "learning_rate": 0.03, "weight_decay": 0.1}
    return load_task("vit-cifar10", data="digits", overrides=overrides)


def weights():
    generator = torch.Generator().manual_seed(0)
    shapes = ((3, 4), (5,), ())
    return [nn.Parameter(torch.randn(s, generator=generator).double()) for s in shapes]


def gradients(step, tensors):
    """Gradients of a step; the last weight never has one."""
    return [torch.cos(step + 3 * w.detach()) for w in tensors[:2]] + [None]


def expected(task, tensors, rates_and_momenta):
    """The formula of the module, weight by weight."""
    moments = [(torch.zeros_like(w), torch.zeros_like(w)) for w in tensors]
    for t, (rate, momentum) in enumerate(rates_and_momenta, 1):
        for i, (w, g) in enumerate(zip(tensors, gradients(t, tensors), strict=True)):
            if g is None:
                continue
            first, second = moments[i]
            first = momentum * first + (1 - momentum) * g
            second = task.beta2 * second + (1 - task.beta2) * g**2
            moments[i] = first, second
            scale = rate / (1 - momentum**t)
            below = (second / (1 - task.beta2**t)).sqrt() + 1e-8
            tensors[i] = w * (1 - rate * decay_of(w, task)) - scale * first / below
    return tensors


@pytest.mark.parametrize(
    "overrides", [{}, {"schedule": "constant"}, {"decay": "matrices", "beta2": 0.9}]
)
def test_scheduled_adamw_follows_the_formula(overrides):
    task, parameters, used = task_for(**overrides), weights(), []
    scheduled = ScheduledAdamW(parameters, task, STEPS)
    for step in range(1, STEPS + 1):
        group = scheduled.optimizer.param_groups[0]
        used.append((group["lr"], group["betas"][0]))
        for weight, gradient in zip(parameters, gradients(step, parameters), strict=True):
            weight.grad = gradient
        scheduled.step()
    start = [w.detach().clone() for w in weights()]
    torch.testing.assert_close(
        [w.detach() for w in parameters], expected(task, start, used), rtol=1e-9, atol=1e-10
    )
    assert torch.equal(parameters[2], weights()[2])  # no gradient, no decay
    rates, momenta = zip(*used, strict=True)
    if task.schedule == "constant":
        assert set(used) == {(0.03, 0.9)}
    else:  # low, peak, near zero; the momentum is lowest at the peak
        assert max(rates) == pytest.approx(0.03, rel=0.05)
        assert rates[-1] < 1e-5 < rates[0] < max(rates)
        assert momenta.index(min(momenta)) == rates.index(max(rates))
        assert math.isclose(max(momenta), 0.95)


def test_schedule_of_one_step():
    ScheduledAdamW(weights(), task_for(), 1).step()


def test_decay_spares_vectors_if_the_task_says_so():
    task, parameters = task_for("constant", decay="matrices"), weights()
    for weight in parameters:
        weight.grad = torch.zeros_like(weight)
    ScheduledAdamW(parameters, task, STEPS).step()
    shrunk = [torch.equal(w, before) for w, before in zip(parameters, weights(), strict=True)]
    assert shrunk == [False, True, True]
    torch.testing.assert_close(parameters[0], weights()[0] * (1 - 0.03 * 0.1))
