"""GPUs that cannot compute, on the emulated runtime: refused with the cause before any training."""

from __future__ import annotations

import os
import re
import time
from contextlib import closing

import pytest
import torch

from nas.common.errors import DeviceError
from nas.evaluation.backends import make_evaluator
from nas.evaluation.execution import Execution
from nas.evaluation.ray_backend import RayEvaluator
from nas.evaluation.trainer import train_candidate
from nas.evaluation.trial import Budget, Evaluation, Trial, run_trials
from nas.genome.mechanisms import mechanism
from nas.report.doctor import examine_machine
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


def test_doctor_says_what_a_search_would_use(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    findings = {finding.about: finding.found for finding in examine_machine()}
    assert findings["GPU"].startswith("emulated GPU; torch for CUDA ")
    assert re.search(r"; without MPS, .*; a training of vit-cifar10 in \w+$", findings["GPU"])
    assert findings["a search"].startswith("4 workers, 0.25 of a GPU each; ")


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


@pytest.mark.slow
def test_a_trial_alone_has_the_whole_gpu_and_no_neighbour(task, monkeypatch, tmp_path):
    """Each of two workers has a quarter of 2 GiB, and as much again for its context.

    Whatever runs beside "guilty" fails with it, as under MPS.
    """
    monkeypatch.setenv("EMULATED_GIB", "2")
    trained = {"small": None, "large": None, "neighbour": None}
    expected = trained | {"huge": "out_of_memory", "guilty": "error"}

    def train(trial, task, data, *, device, **_):
        gibibytes = {"large": 1.0, "huge": 3.0}.get(trial.key, 0.25)
        torch.empty(int(gibibytes * 2**30), dtype=torch.uint8, device=device)
        is_guilty, begun = trial.key == "guilty", tmp_path / "guilty"
        if is_guilty:
            begun.touch()
        for _ in range(30 if trial.key in ("guilty", "neighbour") else 0):
            time.sleep(0.1)
            is_guilty |= begun.exists()
        if is_guilty:
            begun.unlink(missing_ok=True)
            os.environ["EMULATED_ERROR"] = "700"
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return Evaluation("ok", None, {}, (), trial.seed, Budget(1, 1, ""), 0.0, 0.0, 0, "")

    trials = [Trial(key, mechanism("mha").genome, seed) for seed, key in enumerate(expected)]
    execution = Execution(workers=2)
    with closing(RayEvaluator(task, task.load(), execution, train=train)) as evaluator:
        answers = {trial.key: found.reason for trial, found in run_trials(evaluator, trials)}
    assert answers == expected
