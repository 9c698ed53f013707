"""What a candidate prints is bounded, printable, and not among a command's answers."""

from __future__ import annotations

import sys

from nas.evaluation.capture_output import MAX_PRINTED, bounded_output


def test_a_chatty_candidate_is_heard_a_little(capsys):
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
