"""Trainings, calibrations and swaps on a CUDA device."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import nas
from nas.api.doctor import examine
from nas.compiler import build_attention
from nas.costs.timing import calibrate, calibration
from nas.evaluation.trainer import train_candidate, train_guarded, worker_name
from nas.evaluation.trial import Evaluation, Trial
from nas.genome import ModelSizes
from nas.genome.mechanisms import MECHANISMS, mechanism
from nas.surgery.preserving import difference
from nas.tasks import load_task
from nas.training.user_module import UserModule

pytestmark = pytest.mark.gpu

SMALL = {"image_size": 8, "width": 32, "heads": 8, "depth": 2, "train_images": 256,
         "validation_images": 128, "batch_size": 64, "epochs": 2}  # fmt: skip
OPTIONS: dict[str, Any] = {"batch": 4, "precision": "float32", "device": "cuda",
                           "is_causal": False, "qkv_bias": False, "seconds": 0.0}  # fmt: skip
SIZES = ModelSizes(dim=32, heads=4, depth=1, tokens=9)


@pytest.fixture(scope="module")
def task() -> Any:
    return load_task("vit-cifar10", data="digits", overrides=SMALL)


def train(name: str, task: Any) -> Evaluation:
    trial = Trial("key", mechanism(name).genome, 7)
    evaluation = train_candidate(trial, task, task.load(), device="cuda")
    assert evaluation.is_ok, evaluation.error
    return evaluation


@pytest.mark.parametrize("name", MECHANISMS)
def test_named_mechanisms_train_as_a_graph(name: str, task: Any) -> None:
    assert train(name, task).execution == "cuda graph"


def test_a_users_module_trains_in_a_process_of_its_own(task: Any, tmp_path: Any) -> None:
    path = nas.export("mha", tmp_path / "mha.py").path
    module = UserModule(str(path), "Attention", path.read_text())
    trial = Trial(module.key, module, 7)
    evaluation = train_guarded(train_candidate, trial, task, task.load(), "cuda", 300.0)
    assert (evaluation.is_ok, evaluation.execution) == (True, "cuda graph"), evaluation.error
    assert evaluation.worker != worker_name()


def test_the_precision_auto_is_bfloat16_from_a_width_of_256_on(task: Any) -> None:
    for width, precision in ((224, "float32"), (256, "bfloat16")):
        sized = task.model_copy(update={"width": width, "heads": 4, "epochs": 1})
        assert train("mha", sized).budget.precision == precision


def test_a_training_leaves_no_memory_behind(task: Any) -> None:
    for name in ("mha", "additive"):
        train(name, task)
        assert torch.cuda.memory_allocated() < 2**25  # the examples, and the workspace of cuBLAS


class Waiting(nn.Module):
    """Attention that reads a result."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = build_attention(mechanism("mha").genome, SIZES.dim, SIZES.heads)

    def forward(self, x: torch.Tensor, is_causal: bool = False) -> torch.Tensor:
        return self.inner(x, is_causal=is_causal) * float(x.sum().isfinite())


def test_a_calibration_times_graphs_and_leaves_out_what_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = calibrate(SIZES, **OPTIONS)
    assert found["device"] == "cuda"
    assert found["units"]["layer"] > 0
    monkeypatch.setattr(calibration, "build_attention", lambda *_, **__: Waiting())
    with pytest.raises(RuntimeError, match="synchronizing"):
        calibrate(SIZES, **OPTIONS)


def test_swaps_and_exports_leave_the_generator_of_the_gpu(tmp_path: Any) -> None:
    torch.cuda.manual_seed(1234)
    model = nn.MultiheadAttention(32, 4, batch_first=True, device="cuda")
    nas.swap_attention(model, "qana")
    difference(mechanism("qana").genome)
    nas.export("qana", tmp_path / "qana.py")
    assert torch.cuda.initial_seed() == 1234


def test_doctor_names_the_gpu() -> None:
    findings = {finding.about: finding.found for finding in examine()}
    assert torch.cuda.get_device_name() in findings["GPU"]
