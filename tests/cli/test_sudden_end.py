"""A command that trains, and whose process ends without an answer, leaves one sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nas.cli.sudden_end import SENTENCE

SCRIPT = """
import os, signal
from nas.cli.options import with_workers

@with_workers
def command(**execution):
    {body}

command()
"""


@pytest.mark.parametrize(
    ("body", "sentences"),
    [
        ("os._exit(0)", [SENTENCE]),  # as a plug-in may, and as Ray does
        ("os.kill(os.getpid(), signal.SIGKILL)", [SENTENCE]),
        ("raise SystemExit(2)", []),
        ("pass", []),
    ],
)
def test_only_an_end_without_an_answer_is_announced(
    tmp_path: Path, body: str, sentences: list[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(body=body)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr.splitlines() == sentences
    assert done.stdout == ""
