"""Whatever goes wrong, a command line ends with one message and the right status."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nas.cli import COMMANDS
from nas.cli.app import app

PROGRAM = "import sys; from nas.cli import main; main(sys.argv[1:])"


@pytest.fixture
def command() -> Iterator[Callable[[Any], str]]:
    """Adds a command that does what it is given; takes it away at the end."""
    before = list(app.registered_commands)

    def add(function: Any) -> str:
        app.command("tried")(function)
        return "tried"

    yield add
    app.registered_commands[:] = before


def test_help_lists_every_command_on_a_line_that_is_not_cut(nas: Any) -> None:
    for flag in ("-h", "--help"):
        result = nas(flag)
        assert result.status == 0
        for name in ("front", "show", "runs", "mechanisms", "validate", "cost", "export"):
            assert f"\n  {name} " in result.out


def test_no_command_prints_the_help(nas: Any) -> None:
    result = nas()
    assert "front" in result.out + result.err
    assert result.status in (0, 2)


def test_version(nas: Any) -> None:
    result = nas("--version")
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith("nas")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["frnt"], "Did you mean 'front'?"),
        (["front", "--foo"], "--foo"),
        (["front", "a", "b"], "b"),
        (["show"], "source"),
        (["show", "mha", "--dim", "0"], "--dim"),
        (["mechanisms", "--tokens", "many"], "valid integer"),
    ],
)
def test_wrong_usage_is_2_and_one_message(nas: Any, arguments: list[str], words: str) -> None:
    result = nas(*arguments)
    assert result.status == 2
    assert result.out == ""
    assert result.err.count("Error: ") == 1
    assert words.lower() in result.err.lower()
    assert "Traceback" not in result.err


def test_a_users_fault_is_one_line(nas: Any, at_runs: Path) -> None:
    result = nas("front", "exampel")
    assert result.status == 2
    assert result.err.startswith("nas: 'exampel': there is no such run")
    assert "did you mean 'example'" in result.err
    assert result.err.count("\n") == 1


def test_an_interrupt_is_130(nas: Any, command: Any) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    result = nas(command(interrupted))
    assert result.status == 130
    assert "Traceback" not in result.err


def test_our_own_faults_keep_their_traceback(nas: Any, command: Any) -> None:
    def broken() -> None:
        raise AssertionError("ours")

    with pytest.raises(AssertionError, match="ours"):
        nas(command(broken))


def test_commands_load_no_torch() -> None:
    code = (
        f"import sys, importlib, nas.cli\n"
        f"for name in {COMMANDS!r}: importlib.import_module('nas.cli.' + name)\n"
        "assert not {'torch', 'pymoo', 'ray', 'matplotlib'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("arguments", [["front"], ["front", "--json"], ["runs"]])
def test_reading_a_run_loads_no_torch(at_runs: Path, arguments: list[str]) -> None:
    code = (
        "import atexit, os, sys\n"
        "loaded = lambda: {'torch', 'pymoo', 'ray'} & sys.modules.keys()\n"
        "atexit.register(lambda: os._exit(9) if loaded() else None)\n"
        f"{PROGRAM}"
    )
    ended = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True)
    assert ended.returncode == 0
    assert b"example" in ended.stdout


def test_a_reader_that_leaves_is_no_error(at_runs: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, "front", "--json"], stdout=writer, stderr=subprocess.PIPE
    )
    os.close(writer)
    assert ended.stderr == b""
    assert ended.returncode in (0, 1)


def test_an_encoding_without_the_signs_is_no_error(at_runs: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "NO_COLOR": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, "front"], capture_output=True, env=environment
    )
    assert ended.returncode == 0
    assert b"example" in ended.stdout


def test_ctrl_c_from_outside_is_130(tmp_path: Path) -> None:
    code = (
        "import time\nfrom nas.cli import main\nfrom nas.cli.app import app\n"
        "@app.command()\ndef wait():\n    print('ready', flush=True)\n    time.sleep(30)\n"
        "main(['wait'])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert b"Traceback" not in err
