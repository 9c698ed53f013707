"""Command lines run in this process: what they print, and their exit status."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from nas.cli import main

TINY = """
name: tiny
kind: images
data: digits
image_size: 8
patch: 2
width: 16
depth: 1
heads: 2
epochs: 1
train_images: 128
validation_images: 100
"""
SEQUENCES = """
name: {name}
kind: {kind}
width: 8
depth: 1
heads: 2
epochs: 1
train_examples: 16
validation_examples: 8
batch_size: 8
"""
MODULE = """
from torch import nn

class Linear(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def forward(self, x):
        return self.linear(x)
"""
DIVERGING = MODULE.replace("(x)", '(x) * (float("nan") if self.training else 1.0)')
LOCAL = ("--backend", "local")


class Result(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def nas(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """Runs a command line, without colours."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments: object) -> Result:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Result(ended.value.code, printed.out, printed.err)

    return run


@pytest.fixture
def at_runs(recorded_run: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in the folder that holds ``runs/example``."""
    monkeypatch.chdir(recorded_run.parent.parent)
    return recorded_run


@pytest.fixture
def at_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def at_tasks(at_folder: Path) -> Path:
    """Work in a folder with ``tiny.yaml`` and ``more.yaml``, which trains twice as long."""
    Path("tiny.yaml").write_text(TINY)
    Path("more.yaml").write_text(TINY.replace("epochs: 1", "epochs: 2").replace("tiny", "more"))
    return at_folder
