"""The training loop: what it records of itself, by graphs and without."""

from __future__ import annotations

import pytest
import torch

from nas.evaluation.trainer import build_backbone
from nas.mechanisms import mechanism
from nas.tasks import load_images, load_task
from nas.tasks.seeds import seeded
from nas.training.hardware import Meter, one_thread
from nas.training.session import Diverged, Session, TimeIsUp

CPU = torch.device("cpu")


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


def fit(graphs=None, time_limit=None, **overrides):
    task = task_for(**overrides)
    digits = load_images("digits", task)
    model = build_backbone(mechanism("mha").genome, task, digits, seed=0)
    session = Session(task, CPU, time_limit, Meter(CPU), graphs=graphs)
    with one_thread(), seeded(0):
        accuracy = session.fit(model, digits, 0)
    return session, accuracy


def test_session_by_graphs_agrees_with_the_plain_one():
    plain, expected = fit()
    graphs = Replays()
    graphed, accuracy = fit(graphs)
    assert (plain.execution, graphed.execution) == ("cpu, eager", "cuda graph")
    assert graphs.captured == 2  # training and judging
    assert accuracy == pytest.approx(expected, abs=0.02)
    losses = [[epoch.train_loss for epoch in s.curve] for s in (plain, graphed)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)  # another form of AdamW


def test_session_of_fewer_steps_than_warm_ups():
    session, _ = fit(Replays(), epochs=1, train_images=64)
    assert session.execution == "cuda graph"


def test_session_says_why_judging_has_no_graph():
    class NoJudging(Replays):
        def capture(self, work):
            if self.captured:
                raise RuntimeError("no more")
            return super().capture(work)

    session, accuracy = fit(NoJudging())
    assert session.execution == (
        "cuda graph, judging: cpu, eager: capture failed (RuntimeError: no more)"
    )
    assert accuracy == fit(Replays())[1]


def test_session_says_nothing_of_steps_before_the_first():
    assert Session(task_for(), CPU, None, Meter(CPU)).execution == ""


def test_session_augments_the_images_of_training_alone():
    plain, _ = fit()
    moved, _ = fit(augmentation="flip_shift")
    again, _ = fit(augmentation="flip_shift")
    assert moved.curve == again.curve
    assert moved.curve[0].train_loss != plain.curve[0].train_loss
    still, _ = fit(augmentation="flip_shift", learning_rate=1e-30)
    assert len({epoch.validation_accuracy for epoch in still.curve[:2]}) == 1


@pytest.mark.parametrize("graphs", [None, Replays()])
def test_session_keeps_its_limits(graphs):
    with pytest.raises(TimeIsUp, match="time limit of 0 s"):
        fit(graphs, time_limit=0.0)
    with pytest.raises(Diverged, match=r"not finite|training loss is"):
        fit(graphs, learning_rate=1000, init_std=100, epochs=20)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["mha", "qana", "neural_attention", "sparsemax"])
@pytest.mark.parametrize("overrides", [{}, {"dropout": 0.1, "augmentation": "flip_shift"}])
def test_session_on_a_gpu_by_graphs_agrees_with_the_eager_one(name, overrides):
    from nas.training.stepping import graphs_on

    cuda = torch.device("cuda")
    task = task_for(**overrides)
    digits = load_images("digits", task)
    curves, said = [], []
    for graphs in (None, graphs_on(cuda)):
        model = build_backbone(mechanism(name).genome, task, digits, seed=0)
        session = Session(task, cuda, None, Meter(cuda), graphs=graphs)
        with seeded(0):
            session.fit(model, digits, 0)
        curves.append([epoch.train_loss for epoch in session.curve])
        said.append(session.execution)
    assert said == ["cuda, eager", "cuda graph"]
    # Not bit by bit: some gradients are atomic additions, in no fixed order.
    assert curves[1] == pytest.approx(curves[0], rel=1e-4)


@pytest.mark.gpu
def test_session_on_a_gpu_goes_on_after_a_failed_capture():
    """The generator and the allocator too: dropout draws on, and the next capture succeeds."""
    from nas.training.stepping import graphs_on

    cuda = torch.device("cuda")
    task = task_for(dropout=0.1)
    digits = load_images("digits", task)
    said = []
    for is_faulty in (True, False):
        model = build_backbone(mechanism("mha").genome, task, digits, seed=0)
        if is_faulty:
            model.layers[0].register_forward_hook(lambda _m, _x, y: y * float(y.sum().isfinite()))
        session = Session(task, cuda, None, Meter(cuda), graphs=graphs_on(cuda))
        with seeded(0):
            session.fit(model, digits, 0)
        said.append(session.execution)
    assert said[0].startswith("cuda, eager: capture failed (")
    assert said[1] == "cuda graph"
