"""The file: its policy, its scripts, its tables, and refused arguments and records."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import weakref
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

import nas
from nas.common.errors import RunError
from nas.common.interrupts import garbage_collection_paused
from nas.common.objectives import Objective
from nas.report.page.writer import SCRIPTS, page, page_script
from nas.report.run_view import RunView
from nas.report.units import amount
from nas.store import open_run
from tests.recorded_run import ACCURACY, CONFIRMED
from tests.report.page.conftest import edited


def hashed(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_policy_allows_what_is_in_the_file_alone(page_file: Path) -> None:
    text = page_file.read_text("utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    (script,) = re.findall(r'<script type="module">(.*?)</script>', text, re.DOTALL)
    assert policy is not None
    rules = dict(rule.split(" ", 1) for rule in policy[1].split("; "))
    assert rules == {
        "default-src": "'none'",
        "script-src": hashed(script),
        "style-src": hashed(style),
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert set(re.findall(r"\w+://[\w./]+", text)) == {"http://www.w3.org/2000/svg"}


def test_every_script_is_declared_once() -> None:
    folder = resources.files("nas.report.page") / "scripts"
    assert sorted(SCRIPTS) == sorted(path.name.removesuffix(".js") for path in folder.iterdir())


def test_no_script_makes_markup_of_data() -> None:
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", page_script()
    )


def test_same_record_gives_the_same_file(page_file: Path, example: Path, tmp_path: Path) -> None:
    again = nas.write_report(example, tmp_path / "again.html")
    assert again.read_bytes() == page_file.read_bytes()


def test_runs_of_other_objectives_share_one_table(
    make_run: Callable[..., Path], tmp_path: Path
) -> None:
    params = Objective("params", "min", "", "numbers that are learned", 0.0, 1e5, is_metric=False)
    one = make_run(tmp_path / "one", generations=2)
    other = make_run(tmp_path / "other", objectives=(params, ACCURACY), generations=2)
    text = nas.write_report([one, other], tmp_path / "page.html").read_text("utf-8")
    grid = re.search(r'<section id="table">.*?<table>(.*?)</table>', text, re.DOTALL)
    assert grid is not None
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in grid[1].split("<tr>")[1:]]
    heads, *members = rows
    assert heads[:5] == ["run", "id", "accuracy %", "score", "MACs"]
    assert {len(row) for row in rows} == {len(heads)}
    assert "params" in heads
    with open_run(other) as run:
        view = RunView.read(run)
    first, lines = view.members[0], [row for row in members if row[0] == "example (2)"]
    assert len(lines) == len(view.members)
    value = amount(first.objectives["accuracy"], "fraction", first.errors["accuracy"])
    score = amount(first.scores["accuracy"], "fraction")
    assert lines[0][:4] == ["example (2)", view.called(first.key), value, score]
    assert lines[0][heads.index("params")] == amount(first.costs["params"])


def test_wrong_endings_unknown_runs_and_no_run_are_refused(example: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"found the ending '\.pdf'; expected \.html"):
        nas.write_report(example, tmp_path / "page.pdf")
    with pytest.raises(RunError, match="there is no such run"):
        nas.write_report("nothing", tmp_path / "page.html", folder=tmp_path)
    with pytest.raises(RunError, match="a report needs a run"):
        nas.write_report([], tmp_path / "page.html")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("reports", "1.5"),
        ("reports", "[1.5]"),
        ("reports", '[{"metrics": {}}]'),
        ("reports", '[{"metrics": 1, "train_loss": 1.5}]'),
        ("metrics", "[]"),
        ("metrics", '{"accuracy": "high"}'),
    ],
)
def test_damaged_training_is_refused(
    example: Path, tmp_path: Path, column: str, value: str
) -> None:
    with edited(example, tmp_path / "own") as database:
        database.execute(f"UPDATE trainings SET {column} = :value", value=value)
    with pytest.raises(RunError, match=r"run\.sqlite: holds a record that cannot be read"):
        nas.write_report(tmp_path / "own", tmp_path / "page.html")


def test_unreadable_genome_is_a_damaged_record(recorded_run: Path, tmp_path: Path) -> None:
    with edited(recorded_run, tmp_path / "run") as database:
        database.execute("UPDATE proposals SET genome = '1 2' WHERE number = 0")
    with pytest.raises(RunError, match="cannot be read"):
        nas.write_report(tmp_path / "run", tmp_path / "page.html")


def test_run_whose_name_is_no_text_is_shown(tmp_path: Path) -> None:
    """The bytes of a folder's name need not be UTF-8."""
    name = os.fsdecode(b"run \xff")
    folder = shutil.copytree(CONFIRMED, tmp_path / name)
    with open_run(folder) as run:
        assert "run=run%20%5Cudcff&amp;" in page([RunView.read(run)])


def test_worker_failures_are_listed(example: Path, tmp_path: Path, page_file: Path) -> None:
    assert "Worker failures" not in page_file.read_text("utf-8")
    with edited(example, tmp_path / "run") as database:
        for kind, key in (("node", "k"), ("node", "l"), ("waiting", None)):
            row = {"kind": kind, "text": f"{kind} <gone>", "worker": "", "key": key, "repeat": 0}
            database.insert("incidents", row | {"recorded": "2026-11-22T12:00:00Z"})
    text = nas.write_report(tmp_path / "run", tmp_path / "page.html").read_text("utf-8")
    rows = re.findall(r"<tr><td>(node|waiting)</td><td>(.)</td><td>(.)</td>", text)
    assert rows == [("node", "2", "2"), ("waiting", "1", "0")]
    assert text.count("node &lt;gone&gt;") == 1


def test_prose_shows_commands_as_code(example: Path, tmp_path: Path, page_file: Path) -> None:
    with edited(example, tmp_path / "run") as database:
        database.execute("DELETE FROM trainings WHERE purpose = 'confirm'")
    text = nas.write_report(tmp_path / "run", tmp_path / "page.html").read_text("utf-8")
    assert "<code>nas confirm" in text
    for html in (text, page_file.read_text("utf-8")):
        assert "`" not in html[html.index("<body>") : html.index('<section id="repeat">')]


def test_page_keeps_no_view_in_a_reference_cycle(example: Path) -> None:
    """Garbage collection would visit all objects of a large run."""
    with open_run(example) as run:
        view = RunView.read(run)
    alive = weakref.ref(view)
    with garbage_collection_paused():
        page([view])
        del view
        assert alive() is None
