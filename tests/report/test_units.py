"""Numbers are short, and rounding never shows a number that its prefix should not have."""

from __future__ import annotations

import pytest

from nas.report.units import amount, digits, duration, header, human, percent, points, quantity


def test_numbers() -> None:
    for value, text in {
        0: "0",
        999: "999",
        1000: "1.00 k",
        1234567: "1.23 M",
        16640: "16.6 k",
        999_600: "1.00 M",
        9_996: "10.0 k",
        99_960: "100 k",
        4e9: "4.00 G",
        2.5e18: "2500 P",
        0.5: "0.50",
    }.items():
        assert human(value) == text
    for value, text in {
        0.01234: "0.0123",
        1.0: "1.00",
        99.96: "100",
        -123.4: "-123",
        0.0: "0",
    }.items():
        assert digits(value) == text
    for seconds, text in {
        0.4: "0 s",
        59.4: "59 s",
        59.6: "1 min 00 s",
        200: "3 min 20 s",
        7500: "2 h 05 min",
        273_600: "3 d 04 h",
    }.items():
        assert duration(seconds) == text
    assert percent(0.1) == "10.0"
    assert amount(0.1 + 0.2, "", 5.5e-17) == "0.300"
    assert points(0.0002, 0.0001, "") == "+0.0002 ± 0.0001"
    assert points(-0.5, 0.25, "") == "-0.500 ± 0.250"
    assert points(0.017, 0.001, "fraction") == "+1.7 ± 0.1"


@pytest.mark.parametrize(
    ("name", "unit", "value", "error", "texts"),
    [
        ("accuracy", "fraction", 0.4567, None, ("accuracy %", "45.7", "45.7 %")),
        ("recall", "fraction", 1.0, 0.0123, ("recall %", "100.0 ± 1.2", "100.0 %")),
        ("log_loss", "nat", 1.23456, 0.031, ("log loss", "1.235 ± 0.031", "1.23 nat")),
        ("macs", "MAC", 1.5e6, 0.0, ("MACs", "1.50 M", "1.50 M MACs")),
        ("time_ms", "ms", 0.4234, None, ("time ms", "0.423", "0.423 ms")),
        ("time_ms", "ms", 1234.5, None, ("time ms", "1.23 k", "1.23 k ms")),
        ("something_new", "", 12.0, None, ("something new", "12", "12")),
    ],
)
def test_a_value_is_shown_by_name_and_unit(
    name: str, unit: str, value: float, error: float | None, texts: tuple[str, str, str]
) -> None:
    assert (header(name, unit), amount(value, unit, error), quantity(value, unit)) == texts
