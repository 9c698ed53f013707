"""Run the fenced blocks of Markdown documents, and compare or replace what they show.

    ```bash run                 commands
    ```python run               a program
    ```sql run                  a query of the database of runs/example
    ```console run              commands after "$ ", each followed by what it prints; a line of
                                three dots stands for any lines, three dots in a line for any text
    ```json file=NAME           a file that later blocks read
    ```python from=PATH         the text of a file of this repository

Further words: ``slow`` (run by the slow tests only), ``exit=N`` (expected exit status of the last
command), ``first=N`` (number of printed lines shown). The blocks of a document run in order
in one folder that looks like a fresh checkout. ``nas`` and ``python -c`` run in forks of a server,
without the time of imports; in a slow block they are processes as in a shell, which it can kill.

    python -m tests.docs.blocks [--slow] FILE...    write today's output into documents
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
        words: the words of the fence after the language.
        start, end: numbers of the first line of text and of the closing fence, from 0.
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
        """Return the text after ``name=`` in the fence; None if there is none."""
        words = dict(word.partition("=")[::2] for word in self.words)
        return words.get(name)

    @property
    def status(self) -> int:
        return int(self.value("exit") or 0)


def blocks(document: str) -> list[Block]:
    """Return the fenced blocks of a document, in order."""
    lines = document.splitlines()
    fenced, opened = [], None
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
            fenced.append(Block(language, tuple(rest), text, first + 1, number))
            opened = None
    assert opened is None, f"the block from line {opened and opened[0] + 1} on has no end"
    return fenced


def commands(session: str) -> list[tuple[str, str]]:
    """Return each command of a console session with its output."""
    parts = re.split(r"^\$ ((?:.*\\\n)*.*\n)", session, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def is_printed(expected: str, printed: str) -> bool:
    """Return whether a document shows what was printed, with three dots for omitted text."""
    pattern = ""
    for line in expected.rstrip("\n").splitlines():
        some = ".*".join(re.escape(part) for part in line.split(ANY))
        pattern += r"(?:[^\n]*\n)*?" if line == ANY else some.replace(".*", r"[^\n]*") + r"\n"
    return re.fullmatch(pattern, _trimmed(printed)) is not None


def _trimmed(printed: str) -> str:
    """Return the text without spaces at the ends of lines."""
    text = "".join(f"{line.rstrip()}\n" for line in printed.rstrip("\n").splitlines())
    return text if printed.strip() else ""


SETTINGS = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "120", "MPLBACKEND": "Agg"}


@cache
def client() -> str:
    """Start server.py, which ends with this process; return the text of a client program."""
    command = [sys.executable, "-m", "tests.docs.server"]
    pipe = subprocess.PIPE
    server = subprocess.Popen(command, cwd=ROOT, env=os.environ | SETTINGS, stdin=pipe, stdout=pipe)
    atexit.register(server.communicate)
    assert server.stdout is not None
    path = server.stdout.readline().decode().strip()
    assert path, "tests.docs.server did not start"
    return CLIENT.format(python=sys.executable, path=path)


class Folder:
    """A folder that looks like a fresh checkout, with the programs `nas`, `python` and `pytest`."""

    def __init__(self, path: Path) -> None:
        self.path = path / "checkout"
        self.path.mkdir()
        for name in SEEN:
            (self.path / name).symlink_to(ROOT / name)
        shutil.copytree(ROOT / "runs" / "example", self.path / "runs" / "example")
        forks, processes = path / "forks", path / "processes"
        forked = f'[ "$1" = -c ] && exec {forks}/forked "$@"'
        nas = """-c 'from nas.cli import main; main()' "$@\""""
        for program, text in (
            (processes / "nas", f"#!/bin/sh\nexec {sys.executable} {nas}\n"),
            (processes / "python", f'#!/bin/sh\nexec {sys.executable} "$@"\n'),
            (processes / "pytest", f'#!/bin/sh\nexec {sys.executable} -m pytest "$@"\n'),
            (forks / "nas", client()),
            (forks / "forked", client()),
            (forks / "python", f'#!/bin/sh\n{forked}\nexec {sys.executable} "$@"\n'),
        ):
            program.parent.mkdir(exist_ok=True)
            program.write_text(text)
            program.chmod(0o755)
        self._forks, self._processes = str(forks), str(processes)

    def run(self, command: list[str], *, is_slow: bool = False) -> tuple[int, str, str]:
        """Run a command; return its exit status, standard output and standard error.

        Args:
            is_slow: whether `nas` and `python -c` are processes of their own, not forks.
        """
        folders = [] if is_slow else [self._forks]
        path = os.pathsep.join([*folders, self._processes, os.environ["PATH"]])
        done = subprocess.run(
            command,
            cwd=self.path,
            env={**os.environ, **SETTINGS, "PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
        )
        return done.returncode, done.stdout, done.stderr

    def shell(self, text: str, *, is_slow: bool = False) -> tuple[int, str, str]:
        """Run shell commands that stop at the first failure; see ``run``."""
        return self.run(["bash", "-euo", "pipefail", "-c", text], is_slow=is_slow)


def follow(block: Block, folder: Folder) -> str:
    """Run a block; return the text that it should have today.

    Raises:
        AssertionError: the exit status of a command differs from the one in the fence.
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
        if block.language == "python":
            done = folder.run(program, is_slow=block.is_slow)
        else:
            done = folder.shell(block.text, is_slow=block.is_slow)
        _check_status(done, block.status, block.text)
    return block.text


def _session(block: Block, folder: Folder) -> str:
    shown = commands(block.text)
    most = block.value("first")
    text = ""
    for number, (command, expected) in enumerate(shown):
        done = folder.shell(command, is_slow=block.is_slow)
        _check_status(done, block.status if number == len(shown) - 1 else 0, command)
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
    """Replace the output and the included files in a document by today's.

    Returns:
        One error for each block that failed; those blocks are unchanged.
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
