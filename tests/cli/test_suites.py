"""What commands make of a task that is made of several."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    "command",
    [
        ("evaluate", "mha", "--task", "bytes-and-recall"),
        ("benchmark", "gqa", "--tasks", "bytes-and-recall"),
    ],
)
def test_one_model_is_asked_for_where_trainings_are_compared(nas, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong = nas(*command)
    assert wrong.status != 0
    assert "task 'bytes-and-recall' is made of several" in wrong.err
    assert "nas benchmark --tasks recall,bytes" in wrong.err
    assert not list(tmp_path.iterdir())
