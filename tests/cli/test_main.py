"""A command line ends with one message and the right exit status, whatever goes wrong."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nas.cli.app import StoppedError, app

PROGRAM = "import sys; from nas.cli import main; main(sys.argv[1:])"


@pytest.fixture
def command() -> Iterator[Callable[[Any], str]]:
    """Adds a command that calls a function; removes the command after the test."""

    def add(function: Any) -> str:
        app.command("tried")(function)
        return "tried"

    yield add
    app.registered_commands[:] = [c for c in app.registered_commands if c.name != "tried"]


def test_help_lists_every_command_and_version_is_printed(nas: Any) -> None:
    for flag in ("-h", "--help"):
        result = nas(flag)
        assert result.status == 0
        # The modules of commands are imported by the first call.
        names = [c.name or getattr(c.callback, "__name__", "") for c in app.registered_commands]
        assert {"search", "front", "export"} <= {*names}
        for name in names:
            assert f"\n  {name} " in result.out
        assert (
            "..." not in result.out.partition("Commands:")[2]
        )  # each description fits into its line
    result = nas("--version")
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith("nas")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("frnt", "Did you mean 'front'?"),
        ("front exampel", "there is no such run in runs (did you mean 'example'?)"),
        ("front example --plot front.gif", "'.gif'"),
        ("show", "source"),
        ("show champion", "did you mean 'champion_2025'"),
        ("validate mha --policy nope", "score_normalize_aggregate"),
        ("validate missing.json", "no such file"),
        ("cost mha --dimm 3", "--dimm"),
        ("cost lsqa --dim 12 --heads 6", "of 6 heads is no whole number"),
        (f"cost mha --tokens {'9' * 5000}", "--tokens"),
        ("export mha -o x.py --dim 10000", "dim: found 10000; expected at most 4096"),
    ],
)
def test_wrong_usage_exits_with_2_and_one_message(
    nas: Any, at_runs: Path, arguments: str, words: str
) -> None:
    result = nas(*arguments.split())
    assert (result.status, result.out) == (2, "")
    assert words.lower() in result.err.lower()
    assert result.err.count("Error: ") == 1 or result.err.startswith("nas: ")
    assert result.err.count("\n") == 1 or "Error: " in result.err
    assert "Traceback" not in result.err


def test_second_sigterm_is_ignored(nas: Any, command: Any) -> None:
    """`timeout` sends two signals; the message with `nas resume` must be printed."""

    def ending() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            signal.raise_signal(signal.SIGTERM)
            raise StoppedError("what to do next") from None

    before = signal.getsignal(signal.SIGTERM)  # Ray's, if this process has used Ray
    assert nas(command(ending)).err.strip() == "nas: what to do next"
    assert signal.getsignal(signal.SIGTERM) is before


def test_reading_a_run_loads_no_torch(at_runs: Path) -> None:
    code = (
        "import atexit, os, sys\n"
        "loaded = lambda: {'torch', 'pymoo', 'ray'} & sys.modules.keys()\n"
        "atexit.register(lambda: os._exit(9) if loaded() else None)\n"
        f"{PROGRAM}"
    )
    ended = subprocess.run([sys.executable, "-c", code, "front"], capture_output=True)
    assert ended.returncode == 0
    assert b"example" in ended.stdout


@pytest.mark.parametrize("width", ["0", "1", "1000000000"])
def test_any_width_shows_the_whole_table(
    nas: Any, at_runs: Path, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    assert "mha" in nas("front", "example").out


def test_closed_output_and_missing_memory_are_no_tracebacks(at_runs: Path) -> None:
    command = f"exec {sys.executable} -m nas"
    closed = subprocess.run(f"{command} front >&-", shell=True, capture_output=True, text=True)
    assert (closed.returncode, closed.stderr) == (0, "")
    limited = f"ulimit -v 300000; {command} cost mha"
    ended = subprocess.run(limited, shell=True, capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr.startswith("nas: ")
    assert ended.stderr.count("\n") == 1


def test_signal_exits_with_130() -> None:
    code = (
        "import time\nfrom nas.cli import main\nfrom nas.cli.app import app\n"
        "@app.command()\ndef wait():\n    print('ready', flush=True)\n    time.sleep(30)\n"
        "main(['wait'])"
    )
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", code], **pipes)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert (
        err.strip()
        == "nas: interrupted; runs, judgements and --record keep the finished trainings."
    )
