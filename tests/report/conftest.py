"""A recorded run as read, and consoles of every width that keep what is printed."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from nas.report.run_view import RunView
from nas.store import open_run
from tests.recorded_run import CONFIRMED


class Printed:
    """A console without colours; a width makes it a terminal, none a pipe."""

    def __init__(self, width: int | None = None) -> None:
        self._file = io.StringIO()
        self.console = Console(
            file=self._file,
            width=width,
            force_terminal=width is not None,
            color_system=None,
            legacy_windows=False,
            _environ={},
        )

    @property
    def text(self) -> str:
        return self._file.getvalue()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


@pytest.fixture
def pipe() -> Printed:
    return Printed()


@pytest.fixture(scope="session")
def view(recorded_run: Path) -> RunView:
    return read(recorded_run)


@pytest.fixture(scope="session")
def example() -> RunView:
    """A search on CIFAR-10 whose front was confirmed."""
    return read(CONFIRMED)


def read(folder: Path) -> RunView:
    with open_run(folder) as run:
        return RunView.read(run, "latest")
