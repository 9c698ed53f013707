from __future__ import annotations

import ast
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from nas.common.errors import ExportError, GenomeError
from nas.compiler import build_attention
from nas.compiler.inlining import inlined
from nas.exporting import EXPORTS, ExportRequest, weights_file
from nas.genome import ALL, Genome
from nas.genome.canonical import canonicalise, digest
from nas.genome.mechanisms import MECHANISMS
from nas.store.sources import genome_of_export
from tests.genomes import build
from tests.samples import samples


def py_text(genome: Genome, dim: int, heads: int, *origin: str, **options: Any) -> str:
    return str(EXPORTS["py"].content(ExportRequest(genome, dim, heads, origin, **options)))


def loaded(text: str) -> dict[str, Any]:
    """Execute an exported file as an import would, without its self-test."""
    scope: dict[str, Any] = {"__name__": "exported"}
    exec(compile(text, "exported.py", "exec"), scope)
    return scope


FEW = ("mha", "qana", "flex_sqa", "kda", "neural_attention")


@pytest.mark.parametrize("is_fast", [False, True])
@pytest.mark.parametrize(
    "name", [*FEW, *(pytest.param(n, marks=pytest.mark.slow) for n in MECHANISMS if n not in FEW)]
)
def test_named_mechanisms_export_exactly(tmp_path: Path, name: str, is_fast: bool) -> None:
    """The self-test against the interpreter; the genome, weights' names, imports and brevity."""
    genome = MECHANISMS[name].genome
    text = py_text(genome, 32, 4, "Source: Genome:", "  Genome:", is_fast=is_fast)
    path = tmp_path / "exported.py"
    path.write_text(text.replace("import torch\n", "raise SystemExit\n"))  # it is not run
    assert genome_of_export(path) == canonicalise(genome)
    nodes = list(ast.walk(ast.parse(text)))
    imported = [alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names]
    imported += [str(n.module) for n in nodes if isinstance(n, ast.ImportFrom)]
    allowed = {"torch", "collections", "functools", "fla"} if is_fast else {"torch"}
    assert {found.split(".")[0] for found in imported} <= allowed
    scope = loaded(text)
    assert scope["self_test"]() < 1e-8
    block = build_attention(genome, 32, 4)
    assert list(scope["Attention"]().state_dict()) == list(block.state_dict())
    count = len(genome.nodes)  # larger genomes need the kernel of gated sums, or several
    most = 90 if name == "mha" else 280 if count < 5 else 200 + 50 * count
    most += 50 if genome.placement != ALL else 0
    assert is_fast or len(text.splitlines()) <= most


@pytest.mark.parametrize("count", [12, pytest.param(60, marks=pytest.mark.slow)])
def test_random_genomes_export_exactly_with_the_faster_classes(count: int) -> None:
    for genome in samples("attention_v2", count):
        scope = loaded(py_text(genome, 32, 8, "Source: a test", is_fast=True))
        assert scope["self_test"]() < 1e-8


def test_the_self_test_can_fail() -> None:
    text = py_text(MECHANISMS["mha"].genome, 32, 4, "mha")
    scope = loaded(text.replace("self.wo(", "1.1 * self.wo("))
    assert scope["self_test"]() > 1e-6


def test_names_cannot_inject_code_into_the_file() -> None:
    evil = 'x"""\nimport os\n"""\\N \udcff'
    text = py_text(MECHANISMS["mha"].genome, 16, 2, evil, evil)
    statements = ast.parse(text).body
    assert ast.get_docstring(ast.parse(text))
    names = [a.name for n in statements if isinstance(n, ast.Import) for a in n.names]
    assert names == ["torch"]
    text.encode("utf-8")


def test_outputs_too_large_for_a_self_test_shrink_the_weights() -> None:
    squared = [("multiply", ["k", "k"]), *(("multiply", [i, i]) for i in range(7))]
    found = build(
        *squared, ("scaled_dot_product", ["q", 7]), ("softmax", [8]), ("weighted_sum", [9, "v"])
    )
    assert loaded(py_text(found, 16, 2, "x"))["self_test"]() < 1e-8


@pytest.mark.parametrize("is_fast", [False, True])
def test_file_of_weights_loads_into_the_class(tmp_path: Path, is_fast: bool) -> None:
    genome = MECHANISMS["qana"].genome
    block, path = build_attention(genome, 16, 2), tmp_path / "champion.safetensors"
    path.write_bytes(weights_file(genome, 1, block.state_dict()))
    assert path.read_bytes() == weights_file(genome, 1, block.state_dict())
    loaded_block = loaded(py_text(genome, 16, 2, is_fast=is_fast))["Attention"]()
    loaded_block.load_state_dict(load_file(path))
    x = torch.randn(2, 5, 16)
    torch.testing.assert_close(loaded_block(x), block(x))
    with safe_open(path, framework="pt") as file:
        about = json.loads(file.metadata()["nas"])
    assert about == {"digest": digest(genome), "layer": 1, "genome": genome.to_dict()}


@pytest.mark.parametrize(
    "text",
    ["", "x = 1", '"""\nGenome:\n{', '"""a\nGenome:\n[1]\n"""', '"""a\nGenome:\n' + "[" * 9999],
)
def test_other_files_cannot_be_read_as_an_export(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.py"
    path.write_text(text)
    with pytest.raises(ExportError, match="holds no genome"):
        genome_of_export(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ExportError, match="cannot be read"):
        genome_of_export(path)
    path.write_text('"""a\nGenome:\n{"graph": 1}\n"""')
    with pytest.raises(GenomeError, match="graph"):
        genome_of_export(path)


def test_two_constants_of_one_name_cannot_be_inlined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    functions = []
    for name, limit in (("constants_a", 1), ("constants_b", 2), ("constants_c", 2)):
        text = f"LIMIT = {limit}\n\n\ndef {name}() -> int:\n    return LIMIT\n"
        (tmp_path / f"{name}.py").write_text(text)
        functions.append(getattr(import_module(name), name))
    with pytest.raises(GenomeError, match="constants_a and constants_b both have a LIMIT"):
        inlined(functions)
    assert "".join(inlined(functions[1:])).count("LIMIT = 2") == 1


def test_constants_of_several_kernels_are_exported_together() -> None:
    gated = ("feature_gate", "k"), ("gated_product", ["q", "k", 0]), ("softmax_free", [1])
    sparse = ("scaled_dot_product", "qk"), ("sparsemax", [4]), ("weighted_sum", [5, 3])
    found = build(*gated, ("weighted_sum", [2, "v"]), *sparse)
    scope = loaded(py_text(found, 32, 4, is_fast=True))
    assert scope["self_test"]() < 1e-8
    x = torch.randn(1, 96, 32)  # so many tokens that both constants are read
    assert scope["Attention"](32, 4)(x).shape == x.shape
