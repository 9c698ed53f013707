from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from nas.canonical import digest
from nas.compiler import build_attention
from nas.errors import ExportError
from nas.export import Origin, export_module, write_module
from nas.export.inline import inlined
from nas.mechanisms import MECHANISMS
from nas.primitives import names
from nas.primitives.masks import mask_bias
from nas.space import load_space
from nas.validation import load_policy
from nas.variation import Variation

if TYPE_CHECKING:
    from nas.genome import Genome


def loaded(text: str) -> dict[str, Any]:
    """Execute an exported file as an import would, without its self-test."""
    scope: dict[str, Any] = {"__name__": "exported"}
    exec(compile(text, "exported.py", "exec"), scope)
    return scope


def check(genome: Genome, dim: int, heads: int) -> None:
    text = export_module(genome, dim, heads, Origin("a test"))
    imported = {
        alias.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert {str(name).split(".")[0] for name in imported} == {"torch"}
    scope = loaded(text)
    assert scope["self_test"]() < 1e-8
    block = build_attention(genome, dim, heads)
    exported = scope["Attention"]()
    exported.load_state_dict(block.state_dict())
    x = torch.randn(2, 6, dim)
    padding = torch.zeros(2, 6, dtype=torch.bool)
    padding[0, 5] = True
    torch.testing.assert_close(exported(x), block(x), rtol=0, atol=0)
    masked = [b(x, key_padding_mask=padding) for b in (exported, block)]
    torch.testing.assert_close(*masked, rtol=0, atol=0)


@pytest.mark.parametrize("name", MECHANISMS)
def test_mechanisms_export_exactly(name: str) -> None:
    check(MECHANISMS[name].genome, 32, 4)


def test_random_genomes_of_every_primitive_export_exactly() -> None:
    space = load_space("attention_v2")
    variation, rng = Variation(space, load_policy(space.policy)), np.random.default_rng(0)
    seen: set[str] = set()
    for _ in range(60):
        genome = variation.sample(rng)
        seen |= {node.op for node in genome.nodes}
        check(genome, 32, 8)
    assert len(seen) > 0.8 * len(set(names()) & set(space.primitives))


def test_the_last_class_is_attention_and_works_at_other_sizes() -> None:
    text = export_module(MECHANISMS["sqa"].genome, 64, 8, Origin("sqa"))
    classes = [n.name for n in ast.parse(text).body if isinstance(n, ast.ClassDef)]
    assert classes[-1] == "Attention"
    block = loaded(text)["Attention"](dim=96, heads=4)
    assert block(torch.randn(1, 3, 96)).shape == (1, 3, 96)


def test_the_docstring_says_what_it_is() -> None:
    genome = MECHANISMS["champion_2025"].genome
    origin = Origin("abc", run="2026_x (space y)", results="accuracy 0.31")
    doc = ast.get_docstring(ast.parse(export_module(genome, 64, 4, origin)))
    assert doc is not None
    for words in (digest(genome), '"op": "sigmoid"', "2026_x", "accuracy 0.31"):
        assert words in doc


def test_a_clean_interpreter_runs_the_file(tmp_path: Path) -> None:
    """Isolated from this project: -I, and an empty folder as the place to stand."""
    path = tmp_path / "champion.py"
    genome = MECHANISMS["champion_2025"].genome
    write_module(export_module(genome, 32, 4, Origin("champion_2025")), path)
    done = subprocess.run(
        [sys.executable, "-I", str(path)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "largest difference" in done.stdout


def test_the_self_test_can_fail() -> None:
    text = export_module(MECHANISMS["mha"].genome, 32, 4, Origin("mha"))
    scope = loaded(text.replace("(dim // heads) ** -0.5", "0.9 * (dim // heads) ** -0.5"))
    assert scope["self_test"]() > 1e-6


def test_no_name_can_put_code_into_the_file() -> None:
    evil = 'x"""\nimport os\n"""\\N \udcff'
    text = export_module(MECHANISMS["mha"].genome, 16, 2, Origin(evil, evil, evil))
    statements = ast.parse(text).body
    assert ast.get_docstring(ast.parse(text))
    names = [a.name for n in statements if isinstance(n, ast.Import) for a in n.names]
    assert names == ["torch"]
    text.encode("utf-8")


def test_outputs_too_large_for_a_self_test_shrink_the_weights(genome: Any) -> None:
    squared = [("multiply", ["k", "k"]), *(("multiply", [i, i]) for i in range(7))]
    found = genome(
        *squared, ("scaled_dot_product", ["q", 7]), ("softmax", [8]), ("weighted_sum", [9, "v"])
    )
    assert loaded(export_module(found, 16, 2, Origin("x")))["self_test"]() < 1e-8


@pytest.mark.parametrize("name", ["", ".", "out", "out.txt", "weights.safetensors"])
def test_only_a_python_file_is_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(ExportError, match=r"ends in \.py"):
        write_module("text", tmp_path / name if name else Path())


def test_a_folder_of_that_name_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out.py").mkdir()
    with pytest.raises(ExportError, match="no file"):
        write_module("text", tmp_path / "out.py")
    assert [p.name for p in tmp_path.iterdir()] == ["out.py"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match="cannot be written"):
        write_module("text", tmp_path / "file" / "out.py")


def test_two_things_of_one_name_are_not_exported() -> None:
    """One of them would be taken for the other."""
    scope = {"__name__": __name__}
    exec("def mask_bias(mask: object) -> None: ...", scope)
    with pytest.raises(AssertionError, match=r"both have a mask_bias"):
        inlined([mask_bias, scope["mask_bias"]])
    assert len(inlined([mask_bias, mask_bias])) == 1
