"""Answers that a run's folder keeps: one a question, read back whole, refused where damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from nas.common.errors import RunError
from nas.store.answers import keep_answer, read_answers


def test_the_same_question_replaces_its_answer(tmp_path: Path) -> None:
    keep_answer(tmp_path, "explain", ["a", "b"], {"seeds": 2, "text": "Σ\ud800"})
    path = keep_answer(tmp_path, "explain", ["a", "b"], {"seeds": 5})
    keep_answer(tmp_path, "explain", ["a", "c"], {"seeds": 3})
    keep_answer(tmp_path, "benchmark", ["a", "b"], {"seeds": 4})
    assert sorted(answer["seeds"] for _, answer in read_answers(tmp_path, "explain")) == [3, 5]
    assert path in [found for found, _ in read_answers(tmp_path, "explain")]
    assert [answer for _, answer in read_answers(tmp_path, "benchmark")] == [{"seeds": 4}]


@pytest.mark.parametrize("text", ["", "[1]", "{", "\xff", "[" * 100_000])
def test_what_is_no_answer_is_named(tmp_path: Path, text: str) -> None:
    path = keep_answer(tmp_path, "explain", ["a"], {})
    path.write_text(text, encoding="latin-1")
    with pytest.raises(RunError, match=r"explain-.*\.json: holds no answer of `nas explain`"):
        read_answers(tmp_path, "explain")


def test_an_answer_that_cannot_be_kept_is_said(tmp_path: Path) -> None:
    (tmp_path / "answers").write_text("a file")
    with pytest.raises(RunError, match=r"answer cannot be kept .* \(File exists\)"):
        keep_answer(tmp_path, "explain", ["a"], {})
