"""GPUs that cannot compute, on the emulated runtime: refused with the cause before any training."""

from __future__ import annotations

import pytest
import torch

from nas.common.errors import DeviceError
from nas.evaluation.backends import make_evaluator
from nas.evaluation.execution import Execution
from nas.evaluation.trainer import train_candidate
from nas.evaluation.trial import Trial
from nas.genome.mechanisms import mechanism
from nas.tasks import load_task

REASONS = {"46": "busy or unavailable", "209": "no kernel image is available"}


@pytest.fixture(scope="module")
def task():
    return load_task("vit-cifar10", data="digits", overrides={"train_images": 64, "epochs": 1})


def train_once(task, execution):
    evaluator = make_evaluator(execution, task, task.load())
    try:
        evaluator.submit([Trial("key", mechanism("mha").genome, 1)])
        return evaluator.wait()
    finally:
        evaluator.close()


@pytest.mark.parametrize(("backend", "number"), [("local", "46"), ("local", "209"), ("ray", "46")])
def test_a_gpu_that_cannot_compute_is_refused(task, monkeypatch, backend, number):
    monkeypatch.setenv("EMULATED_ERROR", number)
    with pytest.raises(DeviceError, match=f"{REASONS[number]}.*--gpus-per-worker 0") as caught:
        train_once(task, Execution(backend, workers=1))
    assert "cudaError" not in str(caught.value)  # advice on debugging


def test_processor_cores_need_no_gpu(task, monkeypatch):
    monkeypatch.setenv("EMULATED_ERROR", "46")
    assert train_once(task, Execution("local", gpus_per_worker=0))[0][1].is_ok


def test_a_failed_training_ends_with_the_cause(task, monkeypatch):
    data = task.load()
    torch.zeros(1, device="cuda")
    monkeypatch.setenv("EMULATED_ERROR", "700")
    trial = Trial("key", mechanism("mha").genome, 1)
    failed = train_candidate(trial, task, data, device="cuda")
    assert failed.error.splitlines()[-1].endswith("an illegal memory access was encountered")
