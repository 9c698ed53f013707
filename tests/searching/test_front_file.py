"""The answer of `nas front --json`, and front.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nas.searching.front_file import FRONT_FILE, run_answer, write_front
from nas.store import open_run


@pytest.fixture
def folder(kit: Any) -> Path:
    kit.search(kit.create(repeats=2, generations=2))
    return kit.root / "run"


def test_damaged_or_missing_front_file_is_written_again(folder: Path) -> None:
    path = folder / FRONT_FILE
    with open_run(folder) as run:
        right = write_front(run).read_bytes()
        assert json.loads(right) == run_answer(run)
        for content in (b"", right[:-10], None):
            path.unlink() if content is None else path.write_bytes(content)
            write_front(run)
            assert path.read_bytes() == right
        before = path.stat().st_mtime_ns
        write_front(run)
        assert path.stat().st_mtime_ns == before
    assert list(folder.glob(".front*")) == []
