"""The training loop: what it reports, by graphs and without, and who may stop it."""

from __future__ import annotations

import pytest
import torch

from nas.evaluation.trainer import build_model
from nas.genome.mechanisms import mechanism
from nas.tasks import load_task
from nas.tasks.seeds import seeded
from nas.training.hardware import Meter, own_state
from nas.training.loop import TimeIsUp, Training
from nas.training.stepping import graphs_on
from nas.training.steps import Diverged

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


class Replays:
    """Graphs that really run what they captured, at each replay."""

    def __init__(self):
        self.captured = 0

    def warm_up(self, work, times):
        for _ in range(times):
            work()

    def capture(self, work):
        self.captured += 1
        return work


def task_for(**overrides):
    small = {"width": 16, "heads": 2, "image_size": 8, "epochs": 3, "train_images": 200,
             "validation_images": 300, "curve_images": 60, "precision": "float32"}  # fmt: skip
    return load_task("vit-cifar10", data="digits", overrides=small | overrides)


def training_for(task, graphs=None, time_limit=None, device=CPU, name="mha", prepare=None):
    data = task.load()
    model = build_model(mechanism(name).genome, task, data, seed=0)
    if prepare:
        prepare(model)
    return Training(model, task, data, Meter(device), time_limit=time_limit, graphs=graphs)


def fit(graphs=None, time_limit=None, **overrides):
    task = task_for(**overrides)
    with own_state(), seeded(0):
        training = training_for(task, graphs, time_limit)
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


def test_who_reads_the_reports_may_stop_it():
    task, batches = task_for(), []
    training = training_for(task)
    own = type(training)._repeat
    training._repeat = lambda steps, chosen: (
        batches.append(len(chosen)),
        own(training, steps, chosen),
    )
    reports = training.reports(0)
    next(reports)
    reports.close()
    assert batches == [200, 60]  # an epoch of training, its judging, and nothing else


def test_training_by_graphs_agrees_with_the_plain_one():
    plain, expected = fit()
    graphs = Replays()
    graphed, reports = fit(graphs)
    assert (plain.execution, graphed.execution) == ("cpu, eager", "cuda graph")
    assert graphs.captured == 2  # training and judging
    assert losses(reports) == pytest.approx(losses(expected), rel=1e-4)  # another form of AdamW
    assert reports[-1].metrics["log_loss"] == pytest.approx(
        expected[-1].metrics["log_loss"], rel=1e-2
    )


def test_training_of_fewer_steps_than_warm_ups():
    assert fit(Replays(), epochs=1, train_images=64)[0].execution == "cuda graph"


def test_training_says_why_judging_has_no_graph():
    class NoJudging(Replays):
        def capture(self, work):
            if self.captured:
                raise RuntimeError("no more")
            return super().capture(work)

    training, reports = fit(NoJudging())
    assert training.execution == (
        "cuda graph, judging: cpu, eager: capture failed (RuntimeError: no more)"
    )
    assert reports[-1].metrics == fit(Replays())[1][-1].metrics


def test_training_augments_its_own_images_alone():
    _, plain = fit()
    _, moved = fit(augmentation="flip_shift")
    _, again = fit(augmentation="flip_shift")
    assert losses(moved) == losses(again)
    assert losses(moved) != losses(plain)
    _, still = fit(augmentation="flip_shift", learning_rate=1e-30)
    assert still[0].metrics == still[1].metrics


@pytest.mark.parametrize("graphs", [None, Replays()])
def test_training_keeps_its_limits(graphs):
    with pytest.raises(TimeIsUp, match="time limit of 0 s"):
        fit(graphs, time_limit=0.0)
    with pytest.raises(Diverged, match=r"training loss is|on validation examples"):
        fit(graphs, learning_rate=1000, init_std=100, epochs=20)


def test_recipe_of_recall_reaches_the_optimiser():
    small = {"train_examples": 20, "epochs": 1, "validation_examples": 8}
    task = load_task("recall", overrides=small)
    steps = training_for(task)._learn
    groups = steps.optimizer._inner.param_groups
    assert {group["weight_decay"] for group in groups} == {0.05, 0.0}
    assert all(group["betas"][1] == 0.99 for group in groups)
    by_decay = {group["weight_decay"]: group["params"] for group in groups}
    assert all(weight.ndim < 2 for weight in by_decay[0.0])


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["mha", "qana", "neural_attention", "sparsemax"])
@pytest.mark.parametrize("overrides", [{}, {"dropout": 0.1, "augmentation": "flip_shift"}])
def test_training_on_a_gpu_by_graphs_agrees_with_the_eager_one(name, overrides):
    found, said = [], []
    for graphs in (None, graphs_on(CUDA)):
        training = training_for(task_for(**overrides), graphs, device=CUDA, name=name)
        with seeded(0):
            found.append(losses(training.reports(0)))
        said.append(training.execution)
    assert said == ["cuda, eager", "cuda graph"]
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
    """The generator and the allocator too: dropout draws on, and the next capture succeeds."""

    def spoil(model):
        model.layers[0].register_forward_hook(lambda _m, _x, y: y * float(y.sum().isfinite()))

    said = []
    for prepare in (spoil, None):
        task = task_for(dropout=0.1)
        training = training_for(task, graphs_on(CUDA), device=CUDA, prepare=prepare)
        with seeded(0):
            list(training.reports(0))
        said.append(training.execution)
    assert said[0].startswith("cuda, eager: capture failed (")
    assert said[1] == "cuda graph"
