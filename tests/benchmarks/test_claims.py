"""Claims of publications: their outcomes, and that the documents state the recorded ones."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from benchmarks.claims import claims, load_claims, outcome_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("expects", "low", "high", "expected"),
    [
        ("better", 0.001, 0.01, "replicates"),
        ("better", -0.03, 0.019, "fails"),
        ("better", -0.03, 0.021, "undecided"),
        ("level", -0.019, 0.01, "replicates"),
        ("level", -0.019, -0.001, "replicates"),
        ("level", -0.021, -0.001, "fails"),
        ("level", -0.021, 0.001, "undecided"),
    ],
)
def test_an_interval_decides_a_claim(expects: str, low: float, high: float, expected: str) -> None:
    assert outcome_of(expects, low, high, margin=0.02) == expected


def test_documents_have_the_printed_table(capsys: pytest.CaptureFixture[str]) -> None:
    figures = claims(argparse.Namespace(record=None))
    printed = capsys.readouterr().out
    assert sum(figure.value for figure in figures) == len(load_claims()[0])
    assert printed.strip() in (ROOT / "docs" / "log.md").read_text("utf-8")
