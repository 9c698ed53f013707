"""``nas --plugin FILE.py`` in place of an installed package, in commands, workers and records."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "import sys; from nas.cli import main; main(sys.argv[1:])"
SPACE = """
name: mine
nodes: {max: 6}
primitives: {scaled_dot_product: {}, squared_score: {}, softmax: {}, weighted_sum: {}, gelu: {}}
projections: {has_wq: [true, false], has_wo: [true, false]}
mechanisms: [mha]
objectives: [quality, macs]
task: {name: tiny.yaml}
"""
TASK = """
name: tiny
kind: recall
width: 8
depth: 1
heads: 2
epochs: 1
batch_size: 32
train_examples: 64
validation_examples: 32
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "tests/plugins/primitive.py", tmp_path / "my_scores.py")
    (tmp_path / "space.yaml").write_text(SPACE)
    (tmp_path / "tiny.yaml").write_text(TASK)
    return tmp_path


def nas(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-c", PROGRAM, *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_file_serves_all_commands_and_the_workers(folder: Path) -> None:
    words = ("--space", "space.yaml", "--gens", "1", "--pop", "6", "--run", "a", "--workers", "1")
    found = nas(folder, "search", "--plugin", "my_scores.py", *words)
    assert found.returncode == 0, found.stderr
    assert "6 evaluated (0 failed)" in found.stderr + found.stdout
    assert "nas --plugin my_scores.py show a/best" in found.stdout
    named = nas(folder, "--plugin", "my_scores.py", "plugins", "--json")
    (plugin,) = json.loads(named.stdout)["groups"][0]["plugins"]
    assert (plugin["name"], plugin["members"]) == ("my_scores", ["squared_score"])

    # The run records the file's digest, so a later session without it is told what is missing.
    absent = nas(folder, "resume", "a", "--gens", "2", "--backend", "local")
    assert absent.returncode == 2
    assert f"my_scores.py was {plugin['version']} and is absent" in absent.stderr
    assert "there is no primitive 'squared_score'" in absent.stderr


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("__main__.py", "", "__main__.py: expected a Python file whose name is a module's"),
        ("absent.py", None, "absent.py: expected a Python file whose name is a module's"),
        ("my-scores.py", "", "my-scores.py: expected a Python file whose name is a module's"),
        ("json.py", "", "json.py: there is another module 'json', "),
        ("broken.py", "1 / 0", "broken.py: cannot be imported (ZeroDivisionError: division by"),
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


def test_the_option_may_follow_the_command_and_have_an_equals_sign(folder: Path) -> None:
    for words in (
        ("primitives", "--json", "--plugin=my_scores.py"),
        ("primitives", "--plugin", "my_scores.py", "--json"),
    ):
        assert "squared_score" in nas(folder, *words).stdout
    assert nas(folder, "primitives", "--plugin").returncode == 2


def test_a_file_can_be_loaded_again_after_a_failure_and_not_after_a_change(folder: Path) -> None:
    program = """
from pathlib import Path
import nas
file = Path("my_scores.py")
text = file.read_text()
for broken in (text + "1 / 0", text.replace('"squared_score"', '"softmax"')):
    file.write_text(broken)
    try:
        nas.load_plugin(file)
    except nas.NasError as error:
        print(error)
file.write_text(text)
nas.load_plugin(file)
nas.load_plugin(file)
print("squared_score" in nas.list_primitives(), "softmax" in nas.list_primitives())
file.write_text(text + "# changed")
try:
    nas.load_plugin(file)
except nas.NasError as error:
    print(error)
"""
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False
    )
    broken, clash, loaded, changed = found.stdout.splitlines()
    assert broken == "my_scores.py: cannot be imported (ZeroDivisionError: division by zero)."
    assert "both have a primitive 'softmax'" in clash
    assert loaded == "True True"
    assert (
        changed == "my_scores.py: module 'my_scores' has changed since its import; restart Python."
    )


def test_a_linked_folder_is_the_same_file(folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder)
    program = "import sys, nas; sys.path.insert(0, 'link'); nas.load_plugin('my_scores.py')"
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
