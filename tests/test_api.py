"""The functions of nas: examples, results, and arguments that are refused."""

from __future__ import annotations

import contextlib
import doctest
import inspect
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nas
from nas.api import execution
from nas.common.errors import ConfigError, GenomeError, NasError, ViolationError
from tests.cli.conftest import TINY

# In this order: later examples read the run of the first.
EXAMPLES = (
    *("search", "resume", "front", "confirm", "evaluate", "judge", "ladder", "explain"),
    *("cost", "show", "validate", "build_attention", "export"),
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results of the examples in the docstrings of public functions, by function."""
    with contextlib.chdir(tmp_path_factory.mktemp("examples")):
        Path("tiny.yaml").write_text(TINY)
        returned = {}
        finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
        for name in EXAMPLES:
            (example,) = finder.find(getattr(nas, name), name, globs={"nas": nas, "torch": torch})
            assert example.examples, name
            names = example.globs
            assert runner.run(example, clear_globs=False).failed == 0, name
            returned[name] = names.get("result", names.get("table", names.get("front")))
    return returned


def test_results_are_json_and_tables_are_data_frames(results: dict[str, Any]) -> None:
    for name in ("search", "front", "confirm", "evaluate", "judge", "ladder", "explain", "cost"):
        json.dumps(results[name].to_dict(), allow_nan=False)
    front, evaluated, explained = results["front"], results["evaluate"], results["explain"]
    assert (len(evaluated.table), len(evaluated.trainings)) == (2, 4)
    assert len(results["confirm"].table) == len(results["confirm"].rows)
    assert (len(front.mechanisms), len(front.trainings)) == (2, 2)
    assert len(results["cost"].table) == 4
    assert len(results["ladder"].table) == len(results["ladder"].rungs)
    assert len(explained.table) == len(explained.edits + explained.controls)
    frame, cell = evaluated.table.set_index("mechanism"), evaluated.cells["tiny", "uniform"]
    assert frame.loc["uniform", "mean"] == cell.mean
    assert frame.loc["uniform", "over_mean"] == cell.difference.mean


@pytest.mark.parametrize("name", EXAMPLES)
def test_docstrings_document_every_parameter(name: str) -> None:
    """The arguments that functions share are explained by ``nas.api.execution``."""
    function = getattr(nas, name)
    text = f"{inspect.getdoc(function)}\n{execution.__doc__}"
    entries = re.findall(r"^ {4}(\w+(?:,\s+\w+)*):\s", text, re.MULTILINE)
    documented = {parameter for entry in entries for parameter in re.split(r",\s+", entry)}
    assert inspect.signature(function).parameters.keys() <= documented


def test_sources_and_genomes_are_built_counted_and_swapped_in() -> None:
    costs = []
    for source in ("qana", nas.load_genome("qana")):
        block = nas.build_attention(source, 64, 4)
        assert block(torch.randn(2, 5, 64)).shape == (2, 5, 64)
        model = torch.nn.TransformerEncoderLayer(16, 2, batch_first=True)
        assert nas.swap_attention(model, source) == ["self_attn"]
        costs.append(nas.cost(source, dim=64, heads=1, tokens=65).rows[0].cost)
    assert costs[0] == costs[1]


def test_search_resume_and_export_from_python(tmp_path: Path) -> None:
    space = tmp_path / "small.yaml"
    (tmp_path / "tiny.yaml").write_text(TINY)
    space.write_text(
        "name: small\nnodes: {max: 4}\nprimitives: {scaled_dot_product: , softmax: , uniform: , "
        f"weighted_sum: }}\nmechanisms: [mha]\ntask: {{name: {tmp_path}/tiny.yaml}}\n"
    )
    ended = nas.search(
        space,
        generations=2,
        population=np.int64(2),
        seed=np.int64(1),
        lag=1,
        backend="local",
        runs=tmp_path / "runs",
    )
    assert ended.status == "finished"
    assert ended.counts.evaluated == 4
    assert nas.build_attention(f"{ended.folder}/best", dim=16, heads=2)
    assert nas.cost(f"{ended.folder}/best").dim == 16
    options: dict[str, Any] = {"backend": "local", "runs": tmp_path / "runs"}
    judged = nas.judge(f"{ended.folder}/best", against="mqa", pairs=1, **options)
    assert judged.pairs == 1  # on the digits of the run, and not on CIFAR-10
    written = nas.export(f"{ended.folder}/best", tmp_path / "best.py", weights=True)
    assert written.weights is not None
    assert written.weights.is_file()
    again = nas.resume(str(ended.folder), generations=3, **options)
    assert again.generations_done == 3


def test_evaluate_refuses_illegal_genomes_and_zero_seeds(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(
        '{"graph_def": [{"op": "scaled_dot_product", "inputs": ["q", "k"]}, '
        '{"op": "softmax", "inputs": [0]}, {"op": "weighted_sum", "inputs": [1, "k"]}]}'
    )
    with pytest.raises(ViolationError, match="values_from"):
        nas.evaluate([path], data="digits", backend="local")
    with pytest.raises(ConfigError, match="seeds: found 0"):
        nas.evaluate(["mha"], seeds=0)


@pytest.mark.parametrize(
    ("function", "arguments", "sentence"),
    [
        (nas.search, {"space": "quickstart", "population": 2.5}, "population: found float 2.5; ex"),
        (nas.search, {"space": "quickstart", "gens": 2}, "unknown key 'gens'; .*generations"),
        (nas.search, {"space": None}, "nas.search, space: found nothing; expected a valid string"),
        (nas.cost, {"sources": 3}, "found int 3; expected str | Path | Genome"),
        (nas.build_attention, {"source": "mha", "heads": 2}, "the key 'dim' is missing"),
        (nas.cost, {"sources": []}, "number of sources: found 0; expected a number from 1"),
        (nas.cost, {"sources": "mha", "tokens": []}, "number of sequence lengths: found 0"),
        (nas.evaluate, {"sources": "mha", "seed": -1}, "seed: found -1; expected a number from 0"),
        (nas.evaluate, {"sources": "mha", "data": ""}, "data: found ''; expected cifar10 or"),
    ],
)
def test_arguments_are_refused_in_a_sentence(
    function: Any, arguments: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        function(**arguments)


@pytest.mark.parametrize(
    ("function", "positions", "names", "words"),
    [
        (nas.cost, ("mha", 64), {}, "too many positional"),  # dim is given by name alone
        (nas.load_plugin, ("a.py", "b.py"), {}, "too many positional"),
        (nas.cost, ("mha",), {"sources": "gqa"}, "multiple values for argument 'sources'"),
    ],
)
def test_arguments_without_a_place_are_an_error_of_python(
    function: Any, positions: Any, names: dict[str, Any], words: str
) -> None:
    with pytest.raises(TypeError, match=words):
        function(*positions, **names)


def test_sizes_of_an_attention_that_does_not_exist_are_an_error_of_genomes() -> None:
    with pytest.raises(GenomeError, match="dim 64 and heads 0: both must be positive"):
        nas.cost("mha", heads=0)


def test_arguments_are_converted_to_the_types_of_python() -> None:
    counted = nas.cost("mha", dim=np.int64(64), tokens=np.array([7, 9])).to_dict()
    assert counted == nas.cost(["mha"], dim="64", tokens=[7, 9]).to_dict()  # type: ignore[arg-type]
    assert json.dumps(counted)


def test_weights_need_a_run_and_its_sizes(tmp_path: Path, recorded_run: Path) -> None:
    with pytest.raises(NasError, match="latest/best"):
        nas.export("mha", tmp_path / "x.py", weights=True)
    with pytest.raises(NasError, match="trained at dim 64 and heads 4, not 32 and 4"):
        nas.export(f"{recorded_run}/best", tmp_path / "x.py", weights=True, dim=32)
    assert not (tmp_path / "x.py").exists()
