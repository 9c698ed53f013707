"""Trainings: they are reproducible bit for bit, and every fault is recorded."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load
from torch import nn

from nas.evaluation import trainer
from nas.evaluation.trainer import build_model, train_candidate
from nas.evaluation.trial import Budget, Evaluation, Trial, is_retried, training_seed
from nas.genome import PLACEMENTS
from nas.genome.mechanisms import mechanism
from nas.store.records import from_json, to_json
from nas.tasks import load_task
from nas.training import candidate
from tests.evaluation.conftest import make_evaluation, results


def task_for(**overrides):
    small = {"width": 32, "epochs": 2, "train_images": 200, "validation_images": 100,
             "image_size": 16, "curve_images": 50}  # fmt: skip
    return load_task("vit-cifar10", data="digits", overrides=small | overrides)


@pytest.fixture(scope="module")
def data():
    return task_for().load()


def trial(name="mha", seed=0, placement="all", **options):
    return Trial(
        "key", replace(mechanism(name).genome, placement=PLACEMENTS[placement]), seed, **options
    )


@pytest.mark.parametrize(("precision", "dropout"), [("float32", 0.1), ("bfloat16", 0.0)])
def test_train_candidate_is_reproducible_bit_for_bit(data, precision, dropout):
    task = task_for(precision=precision, dropout=dropout, epochs=1)
    first = train_candidate(trial(), task, data)
    torch.rand(7)  # the generator's state does not matter
    assert results(train_candidate(trial(), task, data)) == results(first)
    assert results(train_candidate(trial(seed=1), task, data)) != results(first)


def test_train_candidate_records_its_training(data):
    evaluation = train_candidate(trial(seed=3), task_for(precision="float32"), data)
    assert evaluation.is_ok
    assert set(evaluation.metrics) == {"accuracy", "log_loss"}
    assert evaluation.seed == 3
    assert evaluation.budget == Budget(2, 200, "float32")
    assert [report.epoch for report in evaluation.reports] == [1, 2]
    assert evaluation.reports[-1].metrics == evaluation.metrics
    assert 0 < evaluation.core_seconds < 60
    assert evaluation.wall_seconds > 0
    assert evaluation.peak_memory_bytes > 50e6
    assert str(os.getpid()) in evaluation.worker
    assert evaluation.hardware
    assert evaluation.execution == "cpu, eager"
    assert evaluation.weights is None
    assert from_json(Evaluation, to_json(evaluation)) == evaluation


def test_weights_of_attention_layers_are_returned_if_asked(data, monkeypatch):
    models = []

    def remembered(*arguments):
        models.append(build_model(*arguments))
        return models[0]

    monkeypatch.setattr(trainer, "build_model", remembered)
    candidate_trial = trial("gqa", placement="first", keeps_weights=True)
    evaluation = train_candidate(candidate_trial, task_for(), data)
    blocks = models[0].attentions()
    expected = {
        f"layers.{i}.{k}": v
        for i, block in enumerate(blocks)
        for k, v in block.state_dict().items()
    }
    found = load(evaluation.weights)
    assert set(found) == set(expected)
    assert all(torch.equal(found[name], weight) for name, weight in expected.items())


class Faulty(nn.Module):
    """A mechanism with a fault when it runs."""

    def __init__(self, fault) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.fault = fault

    def forward(self, x, is_causal=False):
        return self.fault(x * self.weight)


def raise_it(error):
    def fault(x):
        raise error

    return fault


def only_when_evaluated(x):
    return x if torch.is_grad_enabled() or x.shape[0] == 1 else x / 0


def only_in_16_bits(x):
    large = (1e5 * x).half()
    return x + (large - large).to(x.dtype)


def allocate(x):
    return x + torch.empty(2**50, dtype=torch.uint8).sum()


@pytest.mark.parametrize(
    ("fault", "reason", "words"),
    [
        (lambda x: x * torch.inf, "diverged", "loss is nan"),
        (only_in_16_bits, "diverged", "loss is nan"),
        (only_when_evaluated, "diverged", "on validation examples, log_loss is nan"),
        (lambda x: 0 * x, "constant", "same output for every input"),
        (allocate, "out_of_memory", "can't allocate memory"),
        (raise_it(MemoryError("no room")), "out_of_memory", "no room"),
        (raise_it(torch.OutOfMemoryError("CUDA out of memory")), "out_of_memory", "CUDA"),
        (raise_it(ValueError("boom")), "error", "ValueError: boom"),
        (lambda x: x[:, :3], "error", "RuntimeError"),
    ],
)
def test_faults_of_a_candidate_are_recorded(data, monkeypatch, fault, reason, words):
    monkeypatch.setattr(candidate, "build_attention", lambda *_, **__: Faulty(fault))
    evaluation = train_candidate(trial(), task_for(), data)
    assert (evaluation.status, evaluation.reason) == ("failed", reason)
    assert words in evaluation.error
    assert not evaluation.metrics
    assert from_json(Evaluation, to_json(evaluation)) == evaluation


def test_a_block_that_reads_later_tokens_fails_a_causal_task(monkeypatch):
    monkeypatch.setattr(candidate, "build_attention", lambda *_, **__: Faulty(lambda x: x.flip(1)))
    task = load_task("recall", overrides={"train_examples": 80})
    evaluation = train_candidate(trial(), task, task.load())
    assert evaluation.reason == "leak"
    assert evaluation.error.startswith("the output for a token depends on later tokens")


def test_a_leak_that_begins_in_training_fails_a_causal_task(monkeypatch):
    steps = []

    def leak(x):
        if torch.is_grad_enabled() and x.dtype is torch.float32:  # a step, not the probe
            steps.append(1)
        return x + x.cumsum(1) if len(steps) < 5 else x.flip(1)

    monkeypatch.setattr(candidate, "build_attention", lambda *_, **__: Faulty(leak))
    task = load_task("recall", overrides={"train_examples": 80})
    evaluation = train_candidate(trial(), task, task.load())
    assert (evaluation.reason, bool(evaluation.reports)) == ("leak", True)


@pytest.mark.gpu
def test_train_candidate_on_a_gpu_agrees_with_the_processor(data):
    task = task_for(precision="float32")
    here, there = (train_candidate(trial(), task, data, device=d) for d in ("cpu", "cuda"))
    assert there.is_ok
    assert there.reports[0].train_loss == pytest.approx(here.reports[0].train_loss, rel=1e-3)


def test_training_seed_is_pinned_and_depends_on_each_part():
    assert training_seed(0, "0123456789abcdef", 0) == 1804502978
    seeds = {training_seed(n, key, i) for n in range(5) for key in "abcde" for i in range(5)}
    assert len(seeds) == 125
    assert all(0 <= seed < 2**31 for seed in seeds)


@pytest.mark.parametrize(
    ("reason", "expected"), [("worker_lost", (True, True)), ("diverged", (False, True))]
)
def test_a_resumed_command_repeats_lost_trainings_or_all_failures(reason, expected):
    failure = make_evaluation(status="failed", reason=reason, metrics={})
    assert (is_retried(failure), is_retried(failure, retry_failed=True)) == expected
    assert not is_retried(make_evaluation(), retry_failed=True)
