"""Tasks at other sizes."""

from __future__ import annotations

import pytest

from nas.common.errors import TaskError
from nas.evaluation.step_times import macs_beside_attention
from nas.tasks import load_task
from nas.tasks.base import ModelTask
from nas.tasks.sizes import resized


def weights(task: ModelTask) -> int:
    return task.depth * task.width**2


@pytest.mark.parametrize("name", ["text", "text-256", "vit-cifar10-full"])
@pytest.mark.parametrize("compute", [1 / 25, 1 / 5, 5.0, 25.0])
def test_weights_and_examples_grow_with_the_root_of_compute(name: str, compute: float) -> None:
    task = load_task(name).main
    other = resized(task, compute)
    ratio = weights(other) / weights(task)
    assert ratio == pytest.approx(compute**0.5, rel=0.3)
    shown = task.epochs * getattr(task, "train_examples", 1)
    assert other.epochs * getattr(other, "train_examples", 1) / shown == pytest.approx(
        ratio, rel=0.05
    )
    assert other.heads == task.heads
    assert other.width / other.depth == pytest.approx(task.width / task.depth, rel=0.5)
    assert other.width % (2 * other.heads) == 0
    assert other.name == f"{name} {other.width}x{other.depth}"


def test_the_size_of_the_task_is_the_task() -> None:
    task = load_task("text").main
    same = resized(task, 1.0)
    assert same.fingerprint() == task.fingerprint()


def test_a_model_that_cannot_be_smaller_is_refused() -> None:
    with pytest.raises(TaskError, match="cannot be trained with 1e-06 times its compute"):
        resized(load_task("text").main, 1e-6)


def test_multiply_adds_outside_attention() -> None:
    task = load_task("text").main
    hidden = 160  # 2.5 times the width, in two streams and back
    layer = 3 * task.width * hidden
    macs = macs_beside_attention(task, task.load())
    assert macs == 128 * (task.depth * layer + task.width * 256)


def test_tokens_that_are_not_read_need_no_multiply_adds_after_the_last_attention() -> None:
    task = load_task("recall").main
    read = task.pairs  # answers, of twice as many tokens
    layer = 2 * task.mlp_ratio * task.width**2
    macs = macs_beside_attention(task, data := task.load())
    head = read * task.width * task.num_classes(data)
    assert macs == ((task.depth - 1) * task.sizes.tokens + read) * layer + head
