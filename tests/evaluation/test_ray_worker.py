"""Which plug-ins are refused, and what a worker on a GPU says of its trainings."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nas.common.errors import DeviceError
from nas.common.registry import load_plugin
from nas.evaluation import ray_worker
from nas.evaluation.trial import Evaluation
from tests.evaluation.conftest import make_evaluation

PLUGIN = '''
"""A plug-in: one primitive."""

import os

from torch import nn

from nas.genome.primitives.base import Role, primitive
from my_plugin_parts.shared import doubled

if os.environ.get("NO_SUCH_LIBRARY"):  # as on a node where something it needs is missing
    raise ImportError("no library here")


@primitive(
    "scaled",
    "tokens: tokens[h,w] -> tokens[h,w]",
    role=Role.TRANSFORM,
    notation="2{tokens}",
    source="an example",
)
class Scaled(nn.Module):
    """Twice as much."""

    def forward(self, tokens):
        return doubled(tokens)
'''


def write_plugin(folder: Path) -> None:
    """Write a plug-in of one module that imports another."""
    (folder / "my_plugin_parts").mkdir()
    (folder / "my_plugin_parts" / "__init__.py").touch()
    (folder / "my_plugin_parts" / "shared.py").write_text(
        "def doubled(tokens):\n    return 2 * tokens\n"
    )
    (folder / "my_plugin_parts" / "scaled.py").write_text(PLUGIN)


@pytest.mark.usefixtures("restored_registries")
def test_members_that_the_running_script_defines_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers could not import them."""
    write_plugin(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    scaled = import_module("my_plugin_parts.scaled").Scaled
    monkeypatch.setattr(scaled, "__module__", "__main__")
    with pytest.raises(DeviceError, match="define it in a module, or train in this process"):
        ray_worker.plugins()


@pytest.mark.usefixtures("restored_registries")
def test_workers_import_files_that_define_mechanisms_only() -> None:
    load_plugin("tests/plugins/mechanism.py")
    assert "mechanism" in ray_worker.plugins()


@pytest.mark.parametrize(
    ("share", "is_alone", "reason"),
    [(0.25, False, "worker_lost"), (0.25, True, "error"), (1.0, False, "error")],
)
def test_an_unusable_gpu_is_blamed_only_on_a_trial_without_neighbours(
    monkeypatch: pytest.MonkeyPatch, share: float, is_alone: bool, reason: str
) -> None:
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda _: None)
    monkeypatch.setattr(ray_worker, "_is_cuda_usable", lambda: False)
    failure = make_evaluation(status="failed", reason="error", error="illegal access")
    worker = worker_on_gpu(monkeypatch, failure, share)
    evaluation, is_usable = worker.evaluate(TRIAL, is_alone)
    assert (evaluation.reason, evaluation.error, is_usable) == (reason, "illegal access", False)


TRIAL: Any = SimpleNamespace(is_target=False)


def worker_on_gpu(
    monkeypatch: pytest.MonkeyPatch, evaluation: Evaluation, share: float = 0.25
) -> ray_worker.Worker:
    """A worker with a share of a GPU that does not exist, whose trainings give an evaluation."""
    monkeypatch.setattr(ray_worker, "train_guarded", lambda *_: evaluation)
    worker = ray_worker.Worker()
    worker._gpus, worker._device = share, "cuda"
    worker._tasks, worker._data, worker._train, worker._time_limit = {False: 0}, {False: 0}, None, 1
    return worker
