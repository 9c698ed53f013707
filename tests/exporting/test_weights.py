from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import nas
from nas.cli import main
from nas.errors import ExportError
from nas.evaluation import choices
from nas.export.weights import export_weights
from nas.sources import resolve
from nas.store import find_proposal, open_run

if TYPE_CHECKING:
    from pathlib import Path

SPACE = """
name: own
nodes: {max: 4}
primitives: {scaled_dot_product: , qana: {hidden: [1, 2]}, softmax: , weighted_sum: , gelu: }
placement: [first]
task: {name: vit-cifar10, data: digits, width: 16, depth: 2, heads: 2, epochs: 1, image_size: 8,
       patch: 2, train_images: 200, validation_images: 100, qkv_bias: true}
"""

# Run isolated: no project on the path, only what the exported files hold.
CHECK = """
import sys, torch
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("champion", sys.argv[1])
champion = module_from_spec(spec)
spec.loader.exec_module(champion)
block = champion.Attention()
block.load_state_dict(torch.load(sys.argv[2]))
x, expected = torch.load(sys.argv[3])
difference = (block(x) - expected).abs().max().item()
assert "nas" not in sys.modules
print(difference)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("weights")
    (root / "own.yaml").write_text(SPACE)
    ended = nas.search(
        str(root / "own.yaml"), generations=1, population=4, backend="local", runs=root / "runs"
    )
    return ended.folder


def test_a_clean_interpreter_reproduces_the_trained_module(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "champion.py"
    with pytest.raises(SystemExit) as caught:
        main(["export", f"{run}/best", "-o", str(target), "--weights"])
    assert not caught.value.code
    weights = load_file(tmp_path / "champion.safetensors")
    genome = nas.load_genome(f"{run}/best")
    block = nas.build_attention(genome, dim=16, heads=2, qkv_bias=True)
    block.load_state_dict(weights)
    x = torch.randn(3, 7, 16)
    torch.save(weights, tmp_path / "weights.pt")
    torch.save((x, block(x).detach()), tmp_path / "pair.pt")
    (tmp_path / "check.py").write_text(CHECK)
    files = [str(tmp_path / n) for n in ("check.py", "champion.py", "weights.pt", "pair.pt")]
    done = subprocess.run(
        [sys.executable, "-I", *files], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1e-6


def test_the_metadata_say_what_the_weights_are(run: Path, tmp_path: Path) -> None:
    source = resolve(f"{run}/best")
    export_weights(source, 0, tmp_path / "w.safetensors")
    with safe_open(tmp_path / "w.safetensors", "pt") as file:
        found = file.metadata()
    assert found["digest"] == source.digest
    assert found["run"] == run.name
    assert found["genome"] == source.genome.to_json()


def test_a_layer_without_the_mechanism_writes_nothing(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "champion.py"
    with pytest.raises(SystemExit) as caught:
        main(["export", f"{run}/best", "-o", str(target), "--weights", "--layer", "1"])
    assert caught.value.code == 2
    assert "expected one of 0" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_weights_that_cannot_be_written_are_named(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="cannot be written"):
        export_weights(resolve(f"{run}/best"), 0, tmp_path / "none" / "w.safetensors")


def test_seeds_that_trained_together_train_together_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choices, "is_faster_together", lambda *arguments: True)
    (tmp_path / "own.yaml").write_text(SPACE)
    ended = nas.search(
        str(tmp_path / "own.yaml"),
        generations=1,
        population=3,
        repeats=2,
        backend="local",
        runs=tmp_path / "runs",
    )
    with open_run(ended.folder) as run:
        ways = {e.execution for e in run.evaluations().values()}
        best = find_proposal(run, "best")
        recorded = run.evaluation(best.key or "", 0)
    assert ways == {"cpu, eager, 2 seeds together"}
    assert recorded is not None
    source = resolve(f"{ended.folder}/best", tmp_path / "runs")
    found = export_weights(source, 0, tmp_path / "best.safetensors")
    assert found == recorded.objectives["accuracy"]
