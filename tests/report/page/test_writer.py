"""The file: its policy, its scripts, its tables, and refused arguments and records."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import pytest

import nas
from nas.common.errors import RunError
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
    assert set(re.findall(r"\w+://[\w./]+", text)) == {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }


def test_same_record_gives_the_same_file(page_file: Path, example: Path, tmp_path: Path) -> None:
    again = nas.write_report(example, tmp_path / "again.html")
    assert again.read_bytes() == page_file.read_bytes()


def test_wrong_endings_unknown_runs_and_no_run_are_refused(example: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"found the ending '\.pdf'; expected \.html"):
        nas.write_report(example, tmp_path / "page.pdf")
    with pytest.raises(RunError, match="there is no such run"):
        nas.write_report("nothing", tmp_path / "page.html", folder=tmp_path)
    with pytest.raises(RunError, match="a report needs a run"):
        nas.write_report([], tmp_path / "page.html")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("$.evaluation.reports", '[{"metrics": {}}]'),
        ("$.evaluation.metrics", '{"accuracy": "high"}'),
    ],
)
def test_damaged_training_is_refused(example: Path, tmp_path: Path, field: str, value: str) -> None:
    with edited(example, tmp_path / "own") as database:
        damaged = "json_set(record, :field, json(:value))"
        database.execute(f"UPDATE trainings SET record = {damaged}", field=field, value=value)
    with pytest.raises(RunError, match=r"run\.sqlite: holds a record that cannot be read"):
        nas.write_report(tmp_path / "own", tmp_path / "page.html")
