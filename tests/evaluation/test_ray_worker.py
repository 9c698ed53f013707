"""What workers must share with the driver, and which plug-ins are sent to them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nas.evaluation import ray_worker
from nas.genome.primitives.base import REGISTRY

PLUGIN = '''
"""A plug-in: one primitive."""

import os

from torch import nn

from nas.genome.primitives.base import Role, primitive
from my_plugin_parts.shared import SCALE

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
        return SCALE * tokens
'''


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of an importable plug-in, which is unregistered afterwards."""
    write_plugin(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    REGISTRY._members.pop("scaled", None)
    for name in [name for name in sys.modules if name.startswith("my_plugin")]:
        del sys.modules[name]


def write_plugin(folder: Path) -> None:
    """Write a plug-in of one module that imports another."""
    (folder / "my_plugin_parts").mkdir()
    (folder / "my_plugin_parts" / "__init__.py").touch()
    (folder / "my_plugin_parts" / "shared.py").write_text("SCALE = 2\n")
    (folder / "my_plugin_parts" / "scaled.py").write_text(PLUGIN)


def test_lacks_names_the_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    here = ray_worker.identity("a node")
    assert here.node == "a node"
    assert {"primitive 'softmax'", "task family 'images'"} <= here.members
    assert here.lacks(here) == ""
    other = replace(here, code="0" * 8)
    assert other.lacks(here) == f"another nas (its code is 00000000, here it is {here.code})"
    assert replace(here, torch="1.0").lacks(here) == f"torch 1.0, and here it is {here.torch}"
    more = replace(here, members=here.members | {"primitive 'z'", "primitive 'a'"})
    assert here.lacks(more).startswith("no primitive 'a', primitive 'z': install the plug-in there")
    assert more.lacks(here) == ""  # a worker may have more
    monkeypatch.setattr("torch.__version__", f"{here.torch}+cu128")
    assert ray_worker.identity().lacks(here) == ""  # another build of the same version


def test_loaded_plugins_and_their_sources_are_listed(plugin: Path) -> None:
    before = ray_worker.plugins()
    import_module("my_plugin_parts.scaled")
    assert ray_worker.plugins() == (*before, "my_plugin_parts.scaled")
    assert "primitive 'scaled'" in ray_worker.identity().members
    (plugin / "my_plugin_alone.py").touch()
    import_module("my_plugin_alone")
    assert ray_worker.sources(["my_plugin_parts.scaled", "my_plugin_alone"]) == [
        plugin / "my_plugin_parts",
        plugin / "my_plugin_alone.py",
    ]


def test_a_trial_alone_may_use_the_memory_of_the_whole_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a worker with a quarter of a GPU uses a quarter, less what its context takes."""
    fractions: list[float] = []
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", fractions.append)
    gpu = SimpleNamespace(total_memory=64 * ray_worker._CONTEXT_BYTES)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: gpu)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    ended = SimpleNamespace(status="ok")
    monkeypatch.setattr(ray_worker, "train_guarded", lambda *_: ended)
    worker: Any = object.__new__(ray_worker.Worker)
    worker._gpus, worker._device, worker._is_gpu_unusable = 0.25, "cuda", False
    worker._tasks, worker._data, worker._train, worker._time_limit = {False: 0}, {False: 0}, None, 1
    trial: Any = SimpleNamespace(is_target=False)
    worker.evaluate(trial)
    worker.evaluate(trial, is_alone=True)
    share = 0.25 - 1 / 64
    assert fractions == [share, 1.0, share]
