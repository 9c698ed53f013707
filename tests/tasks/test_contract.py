"""The promises of every task family."""

from __future__ import annotations

import math

import pytest
import torch

from nas.tasks import load_task
from tests.tasks.contract import CPU, Mean, check_task

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


@pytest.fixture(params=TASKS)
def task(request):
    name, overrides = TASKS[request.param]
    return load_task(name, overrides=overrides)


@pytest.fixture
def data(task):
    return task.load()


def test_task_keeps_its_promises(task):
    check_task(task)


def test_sides_are_disjoint_and_depend_on_data_seed(task, data):
    assert task.model_copy(update={"data_seed": 1}).load().digest != data.digest
    if task.kind == "bytes":  # one long text, whose own test says where it is cut
        return
    first, *_ = data.train
    assert data.train[first].dtype == data.validation[first].dtype
    train, held_out = ({r.tobytes() for r in side[first]} for side in (data.train, data.validation))
    assert not train & held_out


def test_an_epoch_has_each_example_once(task, data):
    order = task.order(data, 1, torch.Generator().manual_seed(3)).tolist()
    assert task.kind == "bytes" or len(set(order)) == len(order)  # its windows may overlap
    assert task.num_eval_examples(data, task.epochs) == data.count("validation")


def test_scores_agree_with_losses_and_predictions(task, data):
    model = task.build_model(data, lambda _: Mean(), 0).eval()
    examples = task.examples(data, "validation", CPU, torch.float32)
    inputs, labels = batch = examples.batch(torch.arange(len(examples)))
    with torch.no_grad():
        total, targets = task.loss(model, batch)
        scores = task.score(task.tally(model, batch).tolist())
        right = int((model(inputs).argmax(-1) == labels).sum())
    assert scores["accuracy"] == right / int(targets)
    loss = scores["bits_per_byte"] * math.log(2) if task.kind == "bytes" else scores["log_loss"]
    assert loss == pytest.approx(total.item() / int(targets), rel=1e-5)
    chances = {metric.name: metric.chance for metric in task.metrics(data)}
    if task.kind == "bytes":
        assert scores["bits_per_byte"] == pytest.approx(8, rel=0.1)
    else:
        assert chances["log_loss"] == pytest.approx(-math.log(chances["accuracy"]))
        assert scores["log_loss"] == pytest.approx(chances["log_loss"], rel=0.3)
