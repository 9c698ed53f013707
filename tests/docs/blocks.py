"""Blocks of Markdown that are run: what their fences say, and what comes of them.

    ```bash run                 commands
    ```python run               a program
    ```sql run                  a query of the database of runs/example
    ```console run              commands after "$ ", each followed by what it prints; a line of
                                three dots stands for any lines, three dots in a line for any text
    ```json file=NAME           a file that later blocks read
    ```python from=PATH         the text of a file of this repository

Further words: ``slow`` (left to the slow tests), ``exit=N`` (of the last command), ``first=N`` (of
what is printed, so many lines are shown). The blocks of a document run in order in one folder that
looks like a fresh checkout.

    python -m tests.docs.blocks [--slow] FILE...    write what is printed today into documents
"""

from __future__ import annotations

import argparse
import atexit
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.docs.server import CLIENT

ROOT = Path(__file__).resolve().parents[2]
SEEN = ("nas", "tests", "docs", "search_spaces", "validators", "README.md", "pyproject.toml")
FENCE = re.compile(r"^```(.*)$")
ANY = "..."
LIMIT_SECONDS = 1200


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        words: what follows the language.
        start, end: its first line of text and the line of its closing fence, from 0.
    """

    language: str
    words: tuple[str, ...]
    text: str
    start: int
    end: int

    @property
    def is_run(self) -> bool:
        return "run" in self.words

    @property
    def is_slow(self) -> bool:
        return "slow" in self.words

    def value(self, name: str) -> str | None:
        """What stands behind ``name=``."""
        found = [w.partition("=")[2] for w in self.words if w.startswith(f"{name}=")]
        return found[0] if found else None

    @property
    def status(self) -> int:
        return int(self.value("exit") or 0)


def blocks(document: str) -> list[Block]:
    """The fenced blocks of a document, in order."""
    lines = document.splitlines()
    found, opened = [], None
    for number, line in enumerate(lines):
        fence = FENCE.match(line)
        if fence is None:
            continue
        if opened is None:
            opened = (number, fence[1].split())
        else:
            first, words = opened
            text = "".join(f"{each}\n" for each in lines[first + 1 : number])
            language, *rest = words or [""]
            found.append(Block(language, tuple(rest), text, first + 1, number))
            opened = None
    assert opened is None, f"the block from line {opened and opened[0] + 1} on has no end"
    return found


def commands(session: str) -> list[tuple[str, str]]:
    """The commands of a console session with what each one prints."""
    found: list[tuple[str, str]] = []
    is_open = False
    for line in session.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif is_open:
            found[-1] = (found[-1][0] + line, "")
        else:
            found[-1] = (found[-1][0], found[-1][1] + line)
        is_open = found[-1][0].endswith("\\\n") and not found[-1][1]
    return found


def is_printed(expected: str, printed: str) -> bool:
    """Whether the text shown is the text printed."""
    pattern = ""
    for line in expected.rstrip("\n").splitlines():
        some = ".*".join(re.escape(part) for part in line.split(ANY))
        pattern += r"(?:[^\n]*\n)*?" if line == ANY else some.replace(".*", r"[^\n]*") + r"\n"
    return re.fullmatch(pattern, _trimmed(printed)) is not None


def _trimmed(printed: str) -> str:
    """Without spaces at the ends of lines, which documents do not keep."""
    text = "".join(f"{line.rstrip()}\n" for line in printed.rstrip("\n").splitlines())
    return text if printed.strip() else ""


SETTINGS = {
    "PYTHONPATH": str(ROOT),
    "OMP_NUM_THREADS": "1",
    "COLUMNS": "120",
    "MPLBACKEND": "Agg",
}


@cache
def client() -> str:
    """A program that calls a process that runs programs, and ends with this one: see server.py."""
    command = [sys.executable, "-m", "tests.docs.server"]
    pipe = subprocess.PIPE
    server = subprocess.Popen(command, cwd=ROOT, env=os.environ | SETTINGS, stdin=pipe, stdout=pipe)
    atexit.register(server.communicate)
    assert server.stdout is not None
    path = server.stdout.readline().decode().strip()
    assert path, "tests.docs.server did not start"
    return CLIENT.format(python=sys.executable, path=path)


class Folder:
    """A folder that looks like a fresh checkout with `nas` installed."""

    def __init__(self, path: Path) -> None:
        self.path = path / "checkout"
        self.path.mkdir()
        for name in SEEN:
            (self.path / name).symlink_to(ROOT / name)
        shutil.copytree(ROOT / "runs" / "example", self.path / "runs" / "example")
        programs = path / "bin"
        programs.mkdir()
        forked = f'[ "$1" = -c ] && exec {programs}/forked "$@"'
        for name, text in (
            ("nas", client()),
            ("forked", client()),
            ("python", f'#!/bin/sh\n{forked}\nexec {sys.executable} "$@"\n'),
            ("pytest", f'#!/bin/sh\nexec {sys.executable} -m pytest "$@"\n'),
        ):
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        self.environment = {
            **os.environ,
            **SETTINGS,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        }

    def run(self, command: list[str]) -> tuple[int, str, str]:
        """Exit status, standard output, standard error."""
        done = subprocess.run(
            command,
            cwd=self.path,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
        )
        return done.returncode, done.stdout, done.stderr

    def shell(self, text: str) -> tuple[int, str, str]:
        return self.run(["bash", "-euo", "pipefail", "-c", text])


def follow(block: Block, folder: Folder) -> str:
    """Do what a block asks for, and give its text as it should be.

    Raises:
        AssertionError: a command ends with another status than the one that is announced.
    """
    name, source = block.value("file"), block.value("from")
    if source is not None:
        return (ROOT / source).read_text(encoding="utf-8")
    if name is not None:
        (folder.path / name).write_text(block.text, encoding="utf-8")
    elif block.is_run and block.language == "console":
        return _session(block, folder)
    elif block.is_run and block.language == "sql":
        with closing(sqlite3.connect(folder.path / "runs/example/run.sqlite")) as database:
            database.execute(block.text).fetchall()
    elif block.is_run:
        program = ["python", "-c", block.text]
        done = folder.run(program) if block.language == "python" else folder.shell(block.text)
        _check_status(done, block.status, block.text)
    return block.text


def _session(block: Block, folder: Folder) -> str:
    told = commands(block.text)
    most = block.value("first")
    text = ""
    for number, (command, expected) in enumerate(told):
        done = folder.shell(command)
        _check_status(done, block.status if number == len(told) - 1 else 0, command)
        printed = _trimmed(done[1])
        if most is not None and len(printed.splitlines()) > int(most):
            printed = "".join(printed.splitlines(keepends=True)[: int(most)]) + f"{ANY}\n"
            is_same = is_printed(expected, _trimmed(done[1])) and expected.endswith(f"{ANY}\n")
        else:
            is_same = is_printed(expected, printed)
        text += f"$ {command}" + (expected if is_same else printed)
    return text


def _check_status(done: tuple[int, str, str], status: int, command: str) -> None:
    assert done[0] == status, f"{command}ended with {done[0]}, not {status}:\n{done[1]}{done[2]}"


def rewrite(path: Path, *, with_slow: bool) -> list[str]:
    """Write into a document what its blocks print, and the files that it includes.

    Returns:
        What went wrong; those blocks stay as they are.
    """
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    faults, texts = [], []
    with tempfile.TemporaryDirectory() as place:
        folder = Folder(Path(place))
        for block in blocks("".join(lines)):
            text = block.text
            if with_slow or not block.is_slow:
                try:
                    text = follow(block, folder)
                except (AssertionError, OSError) as error:
                    faults.append(f"{path}, line {block.start + 1}: {error}")
            texts.append((block, text))
    for block, text in reversed(texts):
        lines[block.start : block.end] = text.splitlines(keepends=True)
    path.write_text("".join(lines), encoding="utf-8")
    return faults


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.docs.blocks")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--slow", action="store_true", help="run the slow blocks, too")
    options = parser.parse_args()
    wrong = [f for file in options.files for f in rewrite(file, with_slow=options.slow)]
    sys.exit("\n".join(wrong))
