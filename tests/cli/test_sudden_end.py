"""A command whose process ends without an answer leaves one sentence on standard error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nas.cli.sudden_end import SENTENCE

PLUGIN = """
from nas.cli import main
from nas.evaluation import local

def train(*arguments, **options):
    {body}

local.train_guarded = train
main(["evaluate", "mha", "--task", "recall", "--backend", "local"])
"""


@pytest.mark.parametrize(
    ("body", "sentences"), [("import os; os._exit(0)", [SENTENCE]), ("raise KeyboardInterrupt", [])]
)
def test_only_an_end_without_an_answer_is_announced(
    tmp_path: Path, body: str, sentences: list[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PLUGIN.format(body=body)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert [line for line in done.stderr.splitlines() if line == SENTENCE] == sentences
    assert done.stdout == ""
