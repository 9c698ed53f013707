"""The live display of a search: lines in a pipe, and when it is live."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from nas.report import display as module
from nas.report.display import Display, display
from tests.recorded_run import record_run
from tests.report.conftest import Printed


def test_pipe_gets_a_line_per_generation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Printed()
    record_run(tmp_path, listener=Display(pipe.console))
    first, *ends = pipe.lines
    assert first.startswith("run example · space attention_v2")
    assert first.endswith(f"; 36 trainings, stored in {tmp_path / 'example'}")
    assert all("left" in line for line in ends[:-1])
    assert [line.split(",")[0] for line in ends] == [
        f"generation {n} of 3: {12 * n} of 36 trainings" for n in (1, 2, 3)
    ]
    for fact in ("best ", "cheapest ", "hypervolume 0.", "1 failed", "repeated", "replayed"):
        assert all(fact in line for line in ends)
    assert "\x1b" not in pipe.text
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 0.0)  # and more in long generations
    record_run(tmp_path, name="long", listener=Display(pipe.console))
    assert sum(line.startswith("generation 0 of 3: ") for line in pipe.lines) == 12


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_display_depends_on_the_console_and_restores_the_cursor(
    error: type[BaseException] | None,
) -> None:
    with display(Printed().console) as shown:
        assert not shown.is_live
    terminal = Printed(100)
    with contextlib.suppress(KeyboardInterrupt), display(terminal.console) as shown:
        assert shown.is_live
        if error is not None:
            raise error
    assert "\x1b[?25h" in terminal.text
