"""Several seeds in one pass: each trains as it would alone, and fails alone."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from nas.evaluation import together_or_in_turn, trainer
from nas.evaluation.record import Evaluation, Job
from nas.evaluation.together import Group, Outcome, stack, train_together
from nas.evaluation.together_or_in_turn import forms, is_faster_together
from nas.evaluation.trainer import train_candidate, train_model
from nas.mechanisms import mechanism
from nas.tasks import load_images, load_task
from nas.training.hardware import Meter
from nas.training.optimizers import make_optimizer
from nas.training.part import Part
from nas.training.stacked import Stacked
from nas.training.stepping import EagerSteps, GraphedSteps
from nas.training.work_together import LearnTogether

CPU = torch.device("cpu")
SEEDS = (3, 4, 5)


def task_for(**overrides):
    small = {"width": 32, "epochs": 2, "train_images": 100, "validation_images": 50,
             "image_size": 8, "curve_images": 20, "batch_size": 16, "learning_rate": 1e-3,
             "precision": "float32"}  # fmt: skip
    return load_task("vit-cifar10", data="digits", overrides=small | overrides)


@pytest.fixture(scope="module")
def data():
    return load_images("digits", task_for())


def jobs_of(genome, seeds=SEEDS):
    return [Job("key", genome, seed) for seed in seeds]


def fit(jobs, task, data):
    group = Group(task, CPU, None, Meter(CPU), [Outcome() for _ in jobs])
    models = group.fit(jobs, data)
    return models, group.outcomes


def losses(curve):
    return [epoch.train_loss for epoch in curve]


@pytest.mark.parametrize(
    "recipe",
    [{}, {"dropout": 0.1}, {"dropout": 0.1, "augmentation": "flip_shift"}, {"depth": 1}],
    ids=["plain", "dropout", "dropout and augmentation", "one layer"],
)
def test_group_trains_each_seed_as_it_trains_alone(data, recipe):
    task, jobs = task_for(**recipe), jobs_of(mechanism("mha").genome)
    models, outcomes = fit(jobs, task, data)
    for job, model, outcome in zip(jobs, models, outcomes, strict=True):
        evaluation, alone = train_model(job, task, data)
        assert outcome.accuracy == evaluation.objectives["accuracy"]
        assert losses(outcome.curve) == pytest.approx(losses(evaluation.curve), abs=2e-6)
        for name, weight in alone.state_dict().items():
            assert torch.allclose(model.state_dict()[name], weight, rtol=0, atol=1e-6), name


# What softmax ignores has a gradient of zero up to rounding, which Adam blows up: weights may
# differ there.
@pytest.mark.parametrize(
    "name",
    ["gqa", "sw_sqa", "additive", "qana", "neural_attention", "neural_attention_authors",
     "patterns_and_messages", "champion_2025", "uniform"],
)  # fmt: skip
def test_group_trains_all_kinds_of_mechanisms(data, name):
    task, jobs = task_for(epochs=1), jobs_of(mechanism(name).genome, SEEDS[:2])
    _, outcomes = fit(jobs, task, data)
    for job, outcome in zip(jobs, outcomes, strict=True):
        alone = train_candidate(job, task, data)
        assert losses(outcome.curve) == pytest.approx(losses(alone.curve), abs=1e-5)


@pytest.mark.parametrize("normaliser", ["sparsemax", "entmax15", "topk_softmax"])
def test_group_trains_sparse_normalisers(data, genome, normaliser):
    sparse = genome(("scaled_dot_product", "qk"), (normaliser, [0]), ("weighted_sum", [1, "v"]))
    jobs, task = jobs_of(sparse, SEEDS[:2]), task_for(epochs=1)
    _, outcomes = fit(jobs, task, data)
    for job, outcome in zip(jobs, outcomes, strict=True):
        alone = train_candidate(job, task, data)
        assert losses(outcome.curve) == pytest.approx(losses(alone.curve), abs=1e-5)


def test_group_counts_the_steps_of_a_mechanism_that_warms_up(data, genome):
    warm = genome(
        ("qana", "qk", {"gate": "warmup", "warmup": 10}),
        ("softmax", [0]),
        ("weighted_sum", [1, "v"]),
    )
    models, _ = fit(jobs_of(warm), task_for(epochs=1), data)
    passes = [b.item() for m in models for name, b in m.named_buffers() if "passes" in name]
    assert passes == [7.0] * 2 * len(SEEDS)  # steps of 16 in 100 images; two layers


def test_train_together_answers_each_job_with_its_share_of_the_time(data):
    task, jobs = task_for(), jobs_of(mechanism("mha").genome)
    state = torch.get_rng_state()
    found = train_together(jobs, task, data)
    assert torch.equal(torch.get_rng_state(), state)
    assert [evaluation.seed for evaluation in found] == list(SEEDS)
    assert len({e.core_seconds for e in found}) == 1
    for job, evaluation in zip(jobs, found, strict=True):
        alone = train_candidate(job, task, data)
        assert evaluation.objectives["accuracy"] == alone.objectives["accuracy"]
        assert evaluation.objectives.keys() == alone.objectives.keys()
        assert evaluation.budget == alone.budget
        assert evaluation.execution == "cpu, eager, 3 seeds together"
        assert Evaluation.from_dict(evaluation.to_dict()) == evaluation


def test_train_together_a_seed_that_diverges_fails_alone(data, monkeypatch):
    build = trainer.build_backbone

    def build_one_broken(genome, task, data, seed):
        model = build(genome, task, data, seed)
        if seed == SEEDS[1]:
            model.head.weight.data[0, 0] = torch.nan
        return model

    task, jobs = task_for(), jobs_of(mechanism("mha").genome)
    alone = [train_candidate(job, task, data) for job in jobs]
    monkeypatch.setattr(trainer, "build_backbone", build_one_broken)
    found = train_together(jobs, task, data)
    assert [e.reason for e in found] == [None, "diverged", None]
    assert "training loss is nan" in found[1].error
    assert found[1].curve == ()
    for index in (0, 2):
        assert found[index].objectives["accuracy"] == alone[index].objectives["accuracy"]
        assert losses(found[index].curve) == pytest.approx(losses(alone[index].curve), abs=2e-6)


def test_train_together_stops_at_the_sum_of_the_time_limits(data):
    jobs = jobs_of(mechanism("mha").genome)
    found = train_together(jobs, task_for(epochs=10_000), data, time_limit=0.2)
    assert [e.reason for e in found] == ["time_limit"] * 3
    assert "3 seeds together: stopped after their time limit of 0.6 s" in found[0].error
    assert found[0].wall_seconds < 0.5


class LooksAtNumbers(nn.Module):
    """A block that no vmap can run, since it asks for a value."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return x * self.weight if x.sum().item() < torch.inf else x


def test_train_together_does_in_turn_what_one_pass_cannot(data, monkeypatch):
    monkeypatch.setattr(trainer, "build_attention", lambda *_, **__: LooksAtNumbers())
    task, jobs = task_for(epochs=1), jobs_of(mechanism("mha").genome)
    for job, evaluation in zip(jobs, train_together(jobs, task, data), strict=True):
        alone = train_candidate(job, task, data)
        assert evaluation.curve == alone.curve
        assert evaluation.objectives["accuracy"] == alone.objectives["accuracy"]
        assert "alone: 3 seeds together failed (RuntimeError: " in evaluation.execution


class Replays:
    """Graphs without a GPU: a replay does the work again, as it was captured."""

    def warm_up(self, work, times):
        for _ in range(times):
            work()

    def capture(self, work):
        return work


def test_learn_together_can_be_captured(data):
    """It changes tensors in place and nothing else, as a graph needs it."""
    task = task_for()
    models, _ = stack(jobs_of(mechanism("mha").genome), task, data, CPU)
    chosen = torch.randperm(96).view(32, 3)

    def trained(make):
        stacked = Stacked(copy.deepcopy(models), [])
        optimizer = make_optimizer(stacked.weights, task, 8, CPU, is_capturable=True)
        part = Part(data, "train", task.patch, CPU)
        learn = LearnTogether(stacked, part, optimizer, "float32", CPU)
        steps = make(learn)
        for batch in chosen.split(16):
            steps(batch)
        return steps.execution, learn.means(32), list(stacked.weights)

    eager, graphed = (
        trained(make)
        for make in (
            lambda learn: EagerSteps(learn, 16),
            lambda learn: GraphedSteps(learn, 16, Replays()),
        )
    )
    assert graphed[0] == "cuda graph"
    assert graphed[1] == eager[1]
    assert all(torch.equal(a, b) for a, b in zip(graphed[2], eager[2], strict=True))


@pytest.mark.parametrize(("gain", "expected"), [(1.2, True), (1.0, False), (0.6, False)])
def test_is_faster_together_goes_by_the_clock(data, monkeypatch, gain, expected):
    clock = iter([100.0, 1.0] + [gain, 1.0] * together_or_in_turn.ROUNDS)
    monkeypatch.setattr(together_or_in_turn, "_seconds", lambda *_: next(clock))
    assert is_faster_together(task_for(), data, "cpu", 3) is expected
    assert next(clock, None) is None


@pytest.mark.parametrize(("seeds", "compiling"), [(1, "never"), (3, "always")])
def test_is_faster_together_is_not_asked_of_one_seed_or_compiled_blocks(
    data, monkeypatch, seeds, compiling
):
    monkeypatch.setattr(together_or_in_turn, "_seconds", lambda *_: pytest.fail("measured"))
    assert not is_faster_together(task_for(compile=compiling), data, "cpu", seeds)


def test_forms_can_be_repeated(data):
    """More often than a training has steps; a small set is drawn on anew for a large batch."""
    task = task_for(epochs=1, batch_size=128)
    for form in forms(mechanism("mha").genome, task, replace(data), CPU, 2):
        form()
        form()
