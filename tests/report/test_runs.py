"""`nas runs`: one line a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from nas.errors import RunError
from nas.report.runs import runs_answer, runs_columns
from nas.report.table import table_lines
from nas.store import list_runs


def test_runs_lists_each_run(make_run: Callable[..., Path], tmp_path: Path) -> None:
    make_run(tmp_path, name="one", generations=1)
    make_run(tmp_path, name="two", generations=2, is_finished=False)
    runs, _ = list_runs(tmp_path)
    lines = [line.plain for line in table_lines(runs_columns(runs))]
    assert [line.split()[0] for line in lines] == ["run", "one", "two"]
    assert "finished" in lines[1]
    assert "stopped" in lines[2]
    assert "2/2" in lines[2]


def test_answer_is_json_with_the_problems(recorded_run: Path) -> None:
    runs, _ = list_runs(recorded_run.parent)
    data = json.loads(json.dumps(runs_answer(runs, [RunError("broken")])))
    assert data["problems"] == ["broken"]
    assert data["runs"][0]["run"] == "example"
    assert data["runs"][0]["counts"]["failed"] == 1
