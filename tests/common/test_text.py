"""Untrusted text is printed without control characters and with bounded length."""

from __future__ import annotations

import json

from nas.common.text import MAX_MESSAGE, last_line, message, printable

HOSTILE = "a\x1b[31mred\x9b2J\x07\r\x00\x7f\u202egnp.exe\ud800"


def test_printable_escapes_control_characters_only() -> None:
    shown = printable(HOSTILE)
    assert shown == "a\\u001b[31mred\\u009b2J\\u0007\\u000d\\u0000\\u007f\\u202egnp.exe\\ud800"
    for text in (shown, "softmax((Q·Kᵀ)/√d)·V", "two\nlines\tand a tab", "注意 ✓", ""):
        assert printable(text) == text
    answer = {HOSTILE: [HOSTILE, "plain"]}
    assert json.loads(printable(json.dumps(answer, ensure_ascii=False))) == answer


def test_message_and_last_line_are_shortened() -> None:
    shown = message("x" * 10_000_000)
    assert len(shown) <= MAX_MESSAGE
    assert "10,000,000 characters in all" in shown
    shown = message("\x1b" * MAX_MESSAGE)
    assert message(shown) == shown
    assert len(shown) <= MAX_MESSAGE
    assert last_line("Traceback ...\n  File\nValueError: \x1b]0;x") == "ValueError: \\u001b]0;x"
    assert last_line(None) == last_line("  \n") == ""
