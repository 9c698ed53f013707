"""The trainer: it learns, repeats itself bit for bit, and turns every fault into a record."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from nas.costs import attention_cost
from nas.errors import DeviceError
from nas.evaluation import trainer
from nas.evaluation.record import OBJECTIVES, Evaluation, Job
from nas.evaluation.trainer import build_backbone, train_candidate, train_model
from nas.mechanisms import mechanism
from nas.tasks import load_images, load_task
from nas.training.hardware import check_device, one_thread, resolve_precision


def task_for(**overrides):
    small = {"width": 32, "epochs": 2, "train_images": 200, "validation_images": 100,
             "image_size": 16, "curve_images": 50}  # fmt: skip
    return load_task("vit-cifar10", data="digits", overrides=small | overrides)


@pytest.fixture(scope="module")
def data():
    return load_images("digits", task_for())


def job(name="mha", seed=0, placement="all"):
    return Job("key", replace(mechanism(name).genome, placement=placement), seed)


def outcome(evaluation):
    return evaluation.curve, evaluation.objectives["accuracy"]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_train_candidate_repeats_itself_bit_for_bit(data, precision, dropout):
    task = task_for(precision=precision, dropout=dropout, epochs=1)
    first = train_candidate(job(), task, data)
    torch.rand(7)  # whatever happened in the process before
    assert outcome(train_candidate(job(), task, data)) == outcome(first)
    assert outcome(train_candidate(job(seed=1), task, data)) != outcome(first)


def test_train_candidate_learns_digits():
    task = task_for(train_images=1000, epochs=6, data_seed=1)
    evaluation = train_candidate(job(), task, load_images("digits", task))
    assert evaluation.objectives["accuracy"] > 0.5
    losses = [epoch.train_loss for epoch in evaluation.curve]
    assert losses[-1] < 0.7 * losses[0]


def test_train_candidate_records_what_was_done(data):
    evaluation = train_candidate(job(seed=3), task_for(precision="float32"), data)
    assert evaluation.is_ok
    assert set(evaluation.objectives) == set(OBJECTIVES)
    assert evaluation.seed == 3
    assert evaluation.budget == "2 epochs x 200 images, float32"
    assert [epoch.epoch for epoch in evaluation.curve] == [1, 2]
    assert evaluation.curve[-1].validation_accuracy == evaluation.objectives["accuracy"]
    assert 0 < evaluation.core_seconds < 60
    assert evaluation.wall_seconds > 0
    assert evaluation.peak_memory_bytes > 50e6
    assert str(os.getpid()) in evaluation.worker
    assert evaluation.execution == "cpu, eager"
    assert Evaluation.from_dict(evaluation.to_dict()) == evaluation


@pytest.mark.parametrize(("placement", "own"), [("all", 3), ("first", 1), ("alternate", 2)])
def test_train_candidate_sums_costs_over_the_backbone(data, placement, own):
    task = task_for(depth=3, epochs=1)
    found = train_candidate(job("uniform", placement=placement), task, data).objectives
    sizes = {"dim": 32, "heads": 4, "tokens": 17}
    each = attention_cost(mechanism("uniform").genome, **sizes)
    rest = attention_cost(mechanism("mha").genome, **sizes)
    assert found["macs"] == own * each.macs + (3 - own) * rest.macs
    assert found["params"] == own * each.params + (3 - own) * rest.params


def test_train_model_gives_the_model_that_was_judged(data):
    task = task_for(precision="float32")
    evaluation, model = train_model(job(), task, data)
    with one_thread(), torch.no_grad():
        images = torch.tensor(data.validation).float()
        mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (data.mean, data.std))
        right = model((images - mean) / std).argmax(-1) == torch.tensor(data.validation_labels)
    assert right.float().mean().item() == pytest.approx(
        evaluation.objectives["accuracy"], abs=0.011
    )


def test_build_backbone_gives_mechanisms_the_same_start(data):
    task = task_for()
    one, other = (build_backbone(mechanism(n).genome, task, data, 5) for n in ("mha", "additive"))
    own = {k: v for k, v in one.state_dict().items() if ".attention." not in k}
    assert own
    assert all(torch.equal(v, other.state_dict()[k]) for k, v in own.items())


def test_train_candidate_reads_read_only_images(data):
    frozen = replace(data, train=data.train.copy(), validation=data.validation.copy())
    for array in (frozen.train, frozen.validation):
        array.setflags(write=False)
    assert train_candidate(job(), task_for(epochs=1), frozen).is_ok


def test_train_candidate_leaves_threads_and_generator_as_they_were(data):
    before, state = torch.get_num_threads(), torch.random.get_rng_state()
    train_candidate(job(), task_for(epochs=1), data)
    assert torch.get_num_threads() == before
    assert torch.equal(torch.random.get_rng_state(), state)


class Faulty(nn.Module):
    """A mechanism that goes wrong when it runs."""

    def __init__(self, fault) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.fault = fault

    def forward(self, x):
        return self.fault(x * self.weight)


def raise_it(error):
    def fault(x):
        raise error

    return fault


def only_when_judged(x):
    return x if torch.is_grad_enabled() else x / 0


def allocate(x):
    return x + torch.empty(2**50, dtype=torch.uint8).sum()


@pytest.mark.parametrize(
    ("fault", "reason", "words"),
    [
        (lambda x: x * torch.inf, "diverged", "loss is nan"),
        (only_when_judged, "diverged", "outputs for validation images"),
        (allocate, "out_of_memory", "can't allocate memory"),
        (raise_it(MemoryError("no room")), "out_of_memory", "no room"),
        (raise_it(torch.OutOfMemoryError("CUDA out of memory")), "out_of_memory", "CUDA"),
        (raise_it(ValueError("boom")), "error", "ValueError: boom"),
        (lambda x: x[:, :3], "error", "RuntimeError"),
    ],
)
def test_train_candidate_records_a_fault_of_the_candidate(data, monkeypatch, fault, reason, words):
    monkeypatch.setattr(trainer, "build_attention", lambda *_, **__: Faulty(fault))
    evaluation = train_candidate(job(), task_for(), data)
    assert (evaluation.status, evaluation.reason) == ("failed", reason)
    assert words in evaluation.error
    assert not evaluation.objectives
    assert Evaluation.from_dict(evaluation.to_dict()) == evaluation


def test_train_candidate_stops_at_its_time_limit(data):
    evaluation = train_candidate(job(), task_for(epochs=10_000), data, time_limit=0.5)
    assert (evaluation.status, evaluation.reason) == ("failed", "time_limit")
    assert "0.5 s" in evaluation.error


def test_train_candidate_a_mechanism_that_does_not_fit_is_its_own_fault(data):
    evaluation = train_candidate(job("lsqa"), task_for(heads=2), data)
    assert evaluation.reason == "error"
    assert "3/4" in evaluation.error


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_train_candidate_lets_interrupts_pass(data, monkeypatch, interrupt):
    monkeypatch.setattr(trainer, "build_attention", lambda *_, **__: Faulty(raise_it(interrupt())))
    with pytest.raises(interrupt):
        train_candidate(job(), task_for(), data)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_train_candidate_says_that_there_is_no_gpu(data):
    with pytest.raises(DeviceError, match="sees no GPUs here"):
        train_candidate(job(), task_for(), data, device="cuda")


def test_check_device_refuses_what_it_does_not_know():
    assert check_device("cpu").type == "cpu"
    for name in ("tpu", "mps", "", "cuda:banana"):
        with pytest.raises(DeviceError, match="expected cpu, cuda"):
            check_device(name)


def test_resolve_precision_obeys_what_was_asked():
    cpu = torch.device("cpu")
    assert resolve_precision("float32", cpu) == "float32"
    assert resolve_precision("bfloat16", cpu) == "bfloat16"
    assert resolve_precision("auto", cpu) in ("float32", "bfloat16")


@pytest.mark.gpu
def test_train_candidate_on_a_gpu_agrees_with_the_processor(data):
    task = task_for(precision="float32")
    here, there = (train_candidate(job(), task, data, device=d) for d in ("cpu", "cuda"))
    assert there.is_ok
    assert there.curve[0].train_loss == pytest.approx(here.curve[0].train_loss, rel=1e-3)


def _cifar10() -> Path:
    root = Path(os.environ.get("NAS_DATA", "")).expanduser()
    found = root / "cifar10" if (root / "cifar10").is_dir() else root
    if not os.environ.get("NAS_DATA") or not (found / "train").is_dir():
        pytest.skip("NAS_DATA names no folder with train/ and test/")
    return found


@pytest.mark.data
def test_default_task_tells_attention_from_none():
    task = load_task("vit-cifar10", data=f"imagefolder:{_cifar10()}")
    images = load_images(task.data, task)
    scores = {}
    for name in ("mha", "uniform"):
        done = [train_candidate(job(name, seed), task, images) for seed in range(5)]
        scores[name] = np.array([e.objectives["accuracy"] for e in done])
    gap = scores["mha"].mean() - scores["uniform"].mean()
    error = np.sqrt(sum(s.var(ddof=1) for s in scores.values()) / 5)
    assert gap >= 0.03
    assert gap >= 5 * error
