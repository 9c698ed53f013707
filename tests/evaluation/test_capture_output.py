"""Output of a candidate is bounded, printable, and not on standard output."""

from __future__ import annotations

import sys

from nas.evaluation.capture_output import MAX_PRINTED, bounded_output


def test_bounded_output_shows_the_beginning_on_standard_error(capsys):
    with bounded_output():
        print("\x1b[2Jbegins")
        for _ in range(1000):
            print("x" * 1000)
            print("y", file=sys.stderr)
    print("the answer")
    out, err = capsys.readouterr()
    assert out == "the answer\n"
    assert err.startswith("\\u001b[2Jbegins\nxxx")
    assert MAX_PRINTED < len(err) < MAX_PRINTED + 100
    assert err.count("left out") == 1
