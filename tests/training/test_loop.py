"""The training loop: its reports, with graphs and without, and its limits."""

from __future__ import annotations

import pytest
import torch

from nas.evaluation.trainer import build_model
from nas.genome.mechanisms import mechanism
from nas.tasks import load_task
from nas.tasks.layers import seeded
from nas.training import loop
from nas.training.hardware import Meter, training_settings
from nas.training.loop import TimeIsUp, TrainingLoop
from nas.training.steps import Diverged, graphs_on
from tests.training.recording import Recording

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def task_for(**overrides):
    small = {"width": 16, "heads": 2, "image_size": 8, "epochs": 3, "train_images": 200,
             "validation_images": 300, "curve_images": 60, "precision": "float32"}  # fmt: skip
    return load_task("vit-cifar10", data="digits", overrides=small | overrides)


def training_for(task, graphs=None, time_limit=None, device=CPU, name="mha", prepare=None):
    data = task.load()
    model = build_model(task.resolve(mechanism(name).genome), task, data, seed=0)
    if prepare:
        prepare(model)
    return TrainingLoop(model, task, data, Meter(device), time_limit=time_limit, graphs=graphs)


def fit(graphs=None, time_limit=None, **overrides):
    task = task_for(**overrides)
    with training_settings(), seeded(0):
        training = training_for(task, graphs, time_limit)
        training.step.work.checks_loss = graphs is None  # as on a GPU
        reports = list(training.reports(0))
    return training, reports


def losses(reports):
    return [report.train_loss for report in reports]


def test_training_reports_after_each_epoch():
    _, reports = fit()
    assert [report.epoch for report in reports] == [1, 2, 3]
    assert all(set(report.metrics) == {"accuracy", "log_loss"} for report in reports)
    assert losses(reports) == sorted(losses(reports), reverse=True)
    seconds = [report.core_seconds for report in reports]
    assert 0 < seconds[0] < seconds[1] < seconds[2]


def test_training_by_graphs_equals_the_eager_one():
    plain, expected = fit()
    graphs = Recording()
    graphed, reports = fit(graphs)
    assert (plain.execution, graphed.execution) == ("cpu, eager", "cuda graph")
    assert graphs.warm_ups == 3  # the evaluation runs eagerly
    assert losses(reports) == losses(expected)
    assert reports[-1].metrics == expected[-1].metrics


def test_only_training_images_are_augmented():
    _, plain = fit()
    _, moved = fit(augmentation="flip_shift")
    _, again = fit(augmentation="flip_shift")
    assert losses(moved) == losses(again)
    assert losses(moved) != losses(plain)
    _, still = fit(augmentation="flip_shift", learning_rate=1e-30)
    assert still[0].metrics == still[1].metrics


def test_an_evaluation_counts_each_example_once(monkeypatch):
    _, expected = fit()
    monkeypatch.setattr(loop, "EVAL_BATCH", 7)
    _, reports = fit()
    for report, other in zip(reports, expected, strict=True):
        assert report.metrics == pytest.approx(other.metrics, rel=1e-6)


@pytest.mark.parametrize("graphs", [None, Recording()])
def test_training_ends_at_its_time_limit_and_when_it_diverges(graphs):
    with pytest.raises(TimeIsUp, match="time limit of 0 s"):
        fit(graphs, time_limit=0.0)
    with pytest.raises(Diverged, match=r"training loss is|on validation examples"):
        fit(graphs, learning_rate=1000, init_std=100, epochs=20)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["mha", "qana", "neural_attention", "gqa"])
@pytest.mark.parametrize("overrides", [{}, {"dropout": 0.1, "augmentation": "flip_shift"}])
def test_training_on_a_gpu_by_graphs_agrees_with_the_eager_one(name, overrides):
    found, executions = [], []
    for graphs in (None, graphs_on(CUDA)):
        training = training_for(task_for(**overrides), graphs, device=CUDA, name=name)
        with seeded(0):
            found.append(losses(training.reports(0)))
        executions.append(training.execution)
    assert executions == ["cuda, eager", "cuda graph"]
    # Not bit by bit: some gradients are atomic additions, in no fixed order.
    assert found[1] == pytest.approx(found[0], rel=1e-4)


@pytest.mark.gpu
def test_recall_on_a_gpu_runs_as_a_graph():
    training = training_for(load_task("recall"), graphs_on(CUDA), device=CUDA)
    with seeded(0):
        reports = list(training.reports(0))
    assert training.execution == "cuda graph"
    assert reports[-1].metrics["accuracy"] >= 0.99


@pytest.mark.gpu
def test_training_on_a_gpu_goes_on_after_a_failed_capture():
    """Dropout still draws, and the next capture succeeds."""

    def spoil(model):
        model.layers[0].register_forward_hook(lambda _m, _x, y: y * float(y.sum().isfinite()))

    executions = []
    for prepare in (spoil, None):
        task = task_for(dropout=0.1)
        training = training_for(task, graphs_on(CUDA), device=CUDA, prepare=prepare)
        with seeded(0):
            list(training.reports(0))
        executions.append(training.execution)
    assert executions[0].startswith("cuda, eager: capture failed (")
    assert executions[1] == "cuda graph"
