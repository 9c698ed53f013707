"""The optimiser that a graph can hold is torch's AdamW under torch's schedule."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nas.tasks import load_task
from nas.training.optimizers import CapturableAdamW, ScheduledAdamW, make_optimizer, schedule_of

STEPS = 12


def task_for(schedule="one_cycle", **overrides):
    overrides |= {"schedule": schedule, "learning_rate": 0.03, "weight_decay": 0.1}
    return load_task("vit-cifar10", data="digits", overrides=overrides)


def capturable(own, task):
    return CapturableAdamW(own, task, schedule_of(task, STEPS))


def weights(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    shapes = ((3, 4), (5,), ())
    return [nn.Parameter(torch.randn(s, generator=generator, dtype=dtype)) for s in shapes]


def trained(optimizer, own):
    """The weights after some steps; the last one never has a gradient."""
    target = torch.linspace(-1.0, 1.0, 5, dtype=own[1].dtype)
    for step in range(STEPS):
        for weight in own:
            weight.grad = None
        loss = (own[0] - step).pow(2).sum() + (own[1] * (step % 3) - target).abs().sum()
        loss.backward()
        optimizer.step()
    return [weight.detach() for weight in own]


@pytest.mark.parametrize(
    "overrides",
    [{}, {"schedule": "constant"}, {"decay": "matrices", "beta2": 0.9}],
)
def test_capturable_adamw_is_torchs(overrides):
    task, ours, theirs = task_for(**overrides), weights(), weights()
    expected = trained(ScheduledAdamW(theirs, task, STEPS), theirs)
    found = trained(capturable(ours, task), ours)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)
    assert torch.equal(found[2], weights()[2])  # without a gradient it does not even decay


def test_capturable_adamw_takes_weights_of_several_dtypes():
    task = task_for()
    mixed = [*weights(torch.float32), *weights(torch.float64)]
    optimizer = capturable(mixed, task)
    trained(optimizer, mixed[3:])
    for weight in mixed[:3]:
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    assert [w.dtype for w in mixed] == [torch.float32] * 3 + [torch.float64] * 3
    assert not torch.equal(mixed[0], weights(torch.float32)[0])


def test_capturable_adamw_replaces_none_of_its_tensors():
    task, own = task_for(), weights()
    optimizer = capturable(own, task)
    before = [tensor.data_ptr() for tensor in (*optimizer.state, *own)]
    counts = int(optimizer.state[0].item())
    trained(optimizer, own)
    assert [tensor.data_ptr() for tensor in (*optimizer.state, *own)] == before
    assert int(optimizer.state[0].item()) == counts + STEPS


def test_decay_spares_vectors_where_the_task_says_so():
    task = task_for("constant", decay="matrices")
    for make in (capturable, lambda own, task: ScheduledAdamW(own, task, STEPS)):
        own = weights()
        for weight in own:
            weight.grad = torch.zeros_like(weight)
        make(own, task).step()
        shrunk = [torch.equal(w, before) for w, before in zip(own, weights(), strict=True)]
        assert shrunk == [False, True, True]
        torch.testing.assert_close(own[0], weights()[0] * (1 - 0.03 * 0.1))


def test_schedule_of_begins_low_peaks_and_ends_near_zero():
    rates, momenta = schedule_of(task_for(), STEPS).unbind(1)
    assert rates.max().item() == pytest.approx(0.03, rel=0.05)
    assert rates[-1] < 1e-5 < rates[0] < rates.max()
    assert momenta.argmin() == rates.argmax()
    assert momenta.max().item() == pytest.approx(0.95)


def test_schedule_of_one_step_and_a_constant_one():
    assert schedule_of(task_for(), 1).shape == (1, 2)
    constant = schedule_of(task_for("constant"), 3)
    assert constant.tolist() == [[0.03, 0.9]] * 3


def test_make_optimizer_of_a_processor_is_torchs_own():
    cpu, task = torch.device("cpu"), task_for()
    makers = {
        is_capturable: make_optimizer(weights(), task, 3, cpu, is_capturable=is_capturable)
        for is_capturable in (True, False)
    }
    assert isinstance(makers[True], CapturableAdamW)
    assert isinstance(makers[False], ScheduledAdamW)
