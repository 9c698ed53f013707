"""What workers must share with the driver, and which plug-ins are sent to them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

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


def test_identity_lacks_nothing_of_itself() -> None:
    own = ray_worker.identity("a node")
    assert own.lacks(own) == ""
    assert own.node == "a node"
    assert "primitive 'softmax'" in own.members
    assert "task family 'images'" in own.members


def test_lacks_names_the_difference() -> None:
    own = ray_worker.identity()
    other = replace(own, code="0" * 8)
    assert other.lacks(own) == f"another nas (its code is 00000000, here it is {own.code})"
    assert replace(own, torch="1.0").lacks(own) == f"torch 1.0, and here it is {own.torch}"
    more = replace(own, members=own.members | {"primitive 'z'", "primitive 'a'"})
    assert own.lacks(more).startswith("no primitive 'a', primitive 'z': install the plug-in there")
    assert more.lacks(own) == ""  # a worker may have more


def test_builds_of_one_torch_version_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.__version__", "2.9.0+cpu")
    here = ray_worker.identity()
    monkeypatch.setattr("torch.__version__", "2.9.0+cu128")
    assert ray_worker.identity().lacks(here) == ""


def test_loaded_plugins_and_their_sources_are_listed(plugin: Path) -> None:
    before = ray_worker.plugins()
    assert "my_plugin_parts.scaled" not in before
    import_module("my_plugin_parts.scaled")
    assert ray_worker.plugins() == (*before, "my_plugin_parts.scaled")
    assert ray_worker.sources(["my_plugin_parts.scaled"]) == [plugin / "my_plugin_parts"]
    assert "primitive 'scaled'" in ray_worker.identity().members


def test_source_of_a_plugin_of_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_plugin_alone.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    import_module("my_plugin_alone")
    assert ray_worker.sources(["my_plugin_alone"]) == [tmp_path / "my_plugin_alone.py"]
