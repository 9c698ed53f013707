"""What others wrote is printed without what a terminal would obey, and never at any length."""

from __future__ import annotations

import json

import pytest

from nas.report.text import MAX_MESSAGE, last_line, message, plural, printable

HOSTILE = "a\x1b[31mred\x9b2J\x07\r\x00\x7f\u202egnp.exe\ud800"


def test_nothing_is_left_that_a_terminal_obeys() -> None:
    shown = printable(HOSTILE)
    assert shown == "a\\u001b[31mred\\u009b2J\\u0007\\u000d\\u0000\\u007f\\u202egnp.exe\\ud800"
    assert shown.isprintable()


@pytest.mark.parametrize("text", ["softmax((Q·Kᵀ)/√d)·V", "two\nlines\tand a tab", "注意 ✓", ""])
def test_what_is_harmless_stays(text: str) -> None:
    assert printable(text) == text


def test_json_stays_the_same_json() -> None:
    answer = {HOSTILE: [HOSTILE, "plain"]}
    assert json.loads(printable(json.dumps(answer, ensure_ascii=False))) == answer


def test_a_message_is_short() -> None:
    shown = message("x" * 10_000_000)
    assert len(shown) < MAX_MESSAGE + 50
    assert "9,998,000 more characters" in shown


def test_the_last_line_of_an_error() -> None:
    assert last_line("Traceback ...\n  File\nValueError: \x1b]0;x") == "ValueError: \\u001b]0;x"
    assert last_line(None) == last_line("  \n") == ""


def test_plural() -> None:
    assert plural(1, "seed") == "1 seed"
    assert plural(2000, "seed") == "2,000 seeds"
