"""Numbers are short, and rounding never shows a number that its prefix should not have."""

from __future__ import annotations

import pytest

from nas.report.units import duration, human, measured, percent, plural


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (7, "7"),
        (999, "999"),
        (1000, "1.00 k"),
        (1234567, "1.23 M"),
        (16640, "16.6 k"),
        (999_600, "1.00 M"),
        (9_996, "10.0 k"),
        (99_960, "100 k"),
        (4e9, "4.00 G"),
        (2.5e18, "2500 P"),
        (0.5, "0.50"),
    ],
)
def test_human(value: float, text: str) -> None:
    assert human(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 05 min"),
        (273_600, "3 d 04 h"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_measured_shows_the_standard_error_where_there_is_one() -> None:
    assert measured("accuracy", 0.4567) == "45.7"
    assert measured("accuracy", 0.4567, 0.0123) == "45.7 ± 1.2"
    assert measured("macs", 1.5e6, 0.0) == "1.50 M"
    assert measured("latency_ms", 0.4234, 0.031) == "0.423 ± 0.03"


def test_percent_and_plural() -> None:
    assert percent(0.1) == "10.0"
    assert plural(1, "seed") == "1 seed"
    assert plural(2, "seed") == "2 seeds"
