"""``nas --plugin FILE.py`` in place of an installed package, in commands, workers and records."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nas.common.config import dump_yaml
from tests.contracts.test_plugins import ROOT, SPACE, TINY

PROGRAM = "import sys; from nas.cli import main; main(sys.argv[1:])"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "tests/plugins/primitive.py", tmp_path / "my_scores.py")
    costs = SPACE.replace("overconfidence, cache_bytes_at_4096", "macs")
    (tmp_path / "space.yaml").write_text(costs)
    (tmp_path / "tiny.yaml").write_text(dump_yaml({"name": "tiny", "kind": "recall", **TINY}))
    return tmp_path


def nas(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-c", PROGRAM, *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["--backend local", "--workers 1"])
def test_a_file_serves_all_commands_and_the_workers(folder: Path, backend: str) -> None:
    words = ("--space", "space.yaml", "--gens", "1", "--pop", "6", "--run", "a", *backend.split())
    found = nas(folder, "--plugin", "my_scores.py", "search", *words)
    assert found.returncode == 0, found.stderr
    assert "6 evaluated, 0 repeated" in found.stdout
    assert "nas --plugin my_scores.py show a/best" in found.stdout

    # The run records the file's digest, so a later session without it is told what is missing.
    absent = nas(folder, "resume", "a", "--gens", "2", "--backend", "local")
    assert absent.returncode == 2
    assert re.search(r"my_scores\.py was \w+ and is absent", absent.stderr)
    assert "there is no primitive 'squared_score'" in absent.stderr


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("absent.py", None, "absent.py: there is no such file."),
        ("json.py", "", "json.py: there is another module 'json', "),
        ("broken.py", "1 / 0", "broken.py: cannot be imported (ZeroDivisionError: division by"),
        ("ends.py", "raise SystemExit(0)", "ends.py: cannot be imported (SystemExit: 0)."),
        ("odd.py", "raise GeneratorExit", "odd.py: cannot be imported (GeneratorExit)."),
        ("deep.py", "import sys; sys.setrecursionlimit(50)", "not enough memory or stack, or a"),
        (
            "clash.py",
            "softmax",
            "clash.py: cannot be imported (GenomeError: nas.genome.primitives.normalisers and ",
        ),
    ],
)
def test_a_file_that_cannot_serve_ends_in_one_sentence(
    folder: Path, file: str, text: str | None, message: str
) -> None:
    if text == "softmax":
        text = (folder / "my_scores.py").read_text().replace('"squared_score"', '"softmax"')
    if text is not None:
        (folder / file).write_text(text)
    found = nas(folder, "--plugin", file, "primitives")
    assert found.returncode == 2
    assert found.stderr.startswith(f"nas: {message}")
    assert found.stderr.count("\n") == 1


def test_a_primitive_that_raises_at_a_length_ends_in_one_sentence(folder: Path) -> None:
    file = folder / "my_scores.py"
    text = file.read_text().replace(
        "        return (query", "        query[..., 20, 0]\n        return (query"
    )
    file.write_text(text)
    nodes = [
        {"op": "squared_score", "inputs": ["q", "k"]},
        {"op": "softmax", "inputs": [0]},
        {"op": "weighted_sum", "inputs": [1, "v"]},
    ]
    (folder / "genome.json").write_text(json.dumps({"graph_def": nodes, "proj_config": {}}))
    for command, words in {
        "cost genome.json --tokens 16": "SquaredScore cannot run at this size (IndexError: ",
        "export genome.json -o x.py": "the mechanism cannot be computed (IndexError: ",
    }.items():
        found = nas(folder, "--plugin", file.name, *command.split())
        assert found.returncode == 2
        assert words in found.stderr
        assert found.stderr.count("\n") == 1


def test_answer_is_alone_on_standard_output(folder: Path) -> None:
    (folder / "loud.py").write_text("print('a message\\n' * 9)")
    found = nas(folder, "--plugin", "loud.py", "cost", "mha", "--json")
    assert json.loads(found.stdout)
    assert found.stderr.count("a message\n") == 9
