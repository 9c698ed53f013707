"""Each format is compared with the compiled block before it is written, or says why not."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import nas
from nas.common.errors import ExportError, NasError, RunError
from nas.exporting import EXPORTS, TOLERANCE, ExportRequest, export_file
from nas.exporting.formats import add_noise
from nas.genome import Genome
from nas.genome.mechanisms import MECHANISMS
from tests.genomes import ATTENTION_TO_FIRST, build
from tests.recorded_run import CONFIRMED

QANA = MECHANISMS["qana"].genome
EXAMPLE = Path(__file__).resolve().parents[2] / "runs" / "example"


def request(genome: Genome, **options: Any) -> ExportRequest:
    """A small request with weights that are nowhere zero."""
    initial = ExportRequest(genome, 16, 4, ("Source: a test",), **options)
    block = initial.block()
    add_noise(block)
    return replace(initial, weights=block.state_dict())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sw_sqa", {"is_causal": True, "qkv_bias": True}),
        pytest.param("mha", {"is_causal": True}, marks=pytest.mark.slow),
        pytest.param("qana", {}, marks=pytest.mark.slow),
    ],
)
def test_graph_equals_the_compiled_block_at_sizes_that_tracing_did_not_use(
    tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    """Also for queries without visible keys, and with trained weights."""
    made = request(MECHANISMS[name].genome, **options)
    for suffix in ("pt2", "onnx"):
        difference = export_file(made, tmp_path / f"new/x.{suffix}")
        assert difference is not None
        assert difference <= TOLERANCE
    assert made.weights is not None
    program = torch.export.load(tmp_path / "new/x.pt2")
    for key, tensor in made.weights.items():
        assert torch.equal(program.state_dict[f"block.{key}"], tensor)
    other = replace(made, weights=None, is_causal=not made.is_causal)
    for suffix in ("pt2", "onnx"):  # the comparison detects other weights and another mask
        compare = EXPORTS[suffix].difference
        assert compare is not None
        assert compare(other, tmp_path / f"new/x.{suffix}") > 0.01


@pytest.mark.usefixtures("restored_registries")
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("return self.wo(", "return 1.001 * self.wo(", "fails its own test"),
        ("if is_causal:", "if False:", "differs from the mechanism by"),
        ("mask = kept if mask is None else mask & kept", "pass", "differs from the mechanism by"),
    ],
)
def test_a_file_with_wrong_outputs_is_not_written(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    py = EXPORTS["py"]
    text = str(py.content(request(QANA)))
    assert old in text
    EXPORTS.register("wrong")(replace(py, content=lambda _: text.replace(old, new, 1)))
    with pytest.raises(ExportError, match=words):
        export_file(request(QANA), tmp_path / "x.wrong")
    assert not (tmp_path / "x.wrong").exists()


def test_trained_weights_of_a_run_are_exported(tmp_path: Path) -> None:
    """In the graph, or beside the Python file."""
    beside = nas.export(f"{EXAMPLE}/best", tmp_path / "best.py", weights=True)
    written = nas.export(f"{EXAMPLE}/best", tmp_path / "best.pt2", weights=True, layer=0)
    assert (written.layer, written.weights) == (0, None)
    assert beside.weights == tmp_path / "best.safetensors"
    kept = load_file(beside.weights)
    program = torch.export.load(tmp_path / "best.pt2")
    assert {f"block.{name}" for name in kept} == set(program.state_dict)
    for name, tensor in kept.items():
        assert torch.equal(program.state_dict[f"block.{name}"], tensor)
    for options, words in (
        ({"weights": True, "layer": 1}, "layer 1 does not hold the mechanism; expected one of 0"),
        ({"layer": 0}, "expected --weights, too"),
    ):
        with pytest.raises(ExportError, match=words):
            nas.export(f"{EXAMPLE}/best", tmp_path / "x.pt2", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("suffix", ["py", "pt2"])
def test_weights_with_other_names_are_an_error(tmp_path: Path, suffix: str) -> None:
    """Initial weights are never written in place of trained ones."""
    run = Path(shutil.copytree(EXAMPLE, tmp_path / "run"))
    for path in (run / "weights").iterdir():
        save_file({f"model.{key}": tensor for key, tensor in load_file(path).items()}, path)
    with pytest.raises(RunError, match=r"weights are not those of the mechanism: .*Missing key"):
        nas.export(f"{run}/best", tmp_path / f"x.{suffix}", weights=True)
    assert [*tmp_path.iterdir()] == [run]


def test_file_states_how_each_number_was_obtained(tmp_path: Path) -> None:
    """Estimates with standard errors, predictions and counts; seeds, task and date of trainings."""
    nas.export(f"{CONFIRMED}/best", tmp_path / "best.py")
    text = (tmp_path / "best.py").read_text()
    facts = (
        r"accuracy [\d.]+ ± [\d.]+ % \(estimate .* measured mean [\d.]+ %\)",
        r"time_ms [\d.]+ ms \(predicted\)",
        r"macs .* \(counted\)",
        r"\d+ trainings? \(seeds \d+.*\) of task vit-cifar10, run started 20\d\d-\d\d-\d\d",
    )
    for fact in facts:
        assert re.search(fact, text)


@pytest.mark.usefixtures("restored_registries")
def test_a_mechanism_that_cannot_be_traced_is_refused(tmp_path: Path) -> None:
    import_module("tests.exporting.unexportable")
    found = build(("branching", ["v"]), *ATTENTION_TO_FIRST)
    with pytest.raises(ExportError, match=r"torch.export cannot trace the mechanism \(Guard"):
        export_file(ExportRequest(found, 16, 4), tmp_path / "x.pt2")


@pytest.mark.slow
def test_onnx_names_the_operation_that_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"no operation for aten\.linalg_solve_triangular, which"):
        nas.export("deltanet", tmp_path / "x.onnx", dim=16)


def test_a_mechanism_that_sees_later_tokens_cannot_be_causal() -> None:
    found = build(("short_conv", ["v"], {"causal": False}), *ATTENTION_TO_FIRST)
    with pytest.raises(ExportError, match=r"short_conv sees later tokens"):
        ExportRequest(found, 16, 4, is_causal=True)


@pytest.mark.parametrize("package", ["onnxruntime", "onnxscript"])
def test_a_missing_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ExportError, match=rf"ONNX needs {package}; expected `pip install .*export"):
        nas.export("mha", tmp_path / "x.onnx")


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("x.onnx", {"fast": True}, r"--fast is not for \.onnx files; expected \.py"),
        ("x.py", {"fast": True, "causal": True}, "--fast has no method decode; expected one"),
        ("x.onnx", {"weights": True}, "has no trained weights"),
        ("x.pt2", {"dim": 30}, "dim 30 and heads 4"),
        ("x", {}, "no export format ''; expected one of py, pt2, onnx"),
    ],
)
def test_unsupported_options_names_and_sizes_raise_an_error(
    tmp_path: Path, name: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(NasError, match=words):
        nas.export("mha", tmp_path / name, **options)
    assert not list(tmp_path.iterdir())
