from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import torch

import nas
from nas.errors import ConfigError, NasError, ViolationError

if TYPE_CHECKING:
    from pathlib import Path

TINY = {
    "width": 16,
    "depth": 1,
    "heads": 2,
    "epochs": 1,
    "train_images": 200,
    "validation_images": 100,
    "image_size": 8,
    "patch": 2,
}


def test_the_names_that_programs_call() -> None:
    genome = nas.load_genome("champion_2025")
    block = nas.build_attention(genome, dim=64, heads=4)
    assert block(torch.randn(2, 5, 64)).shape == (2, 5, 64)
    with pytest.raises(AttributeError, match="nothing"):
        nas.nothing  # noqa: B018


@pytest.mark.parametrize("first", ["", "import nas.search.loop; ", "nas.load_genome('mha'); "])
def test_search_can_be_called_whatever_was_imported_before(first: str) -> None:
    code = (
        f"import nas; {first}import nas.search.setup; from nas.errors import NasError\n"
        "try: nas.search('no such space')\n"
        "except NasError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "quickstart" in done.stdout


def test_importing_nas_and_the_command_line_loads_no_torch() -> None:
    code = "import sys, nas, nas.cli, nas.cli.reading; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_evaluate_trains_and_repeats_exactly() -> None:
    def accuracies() -> list[float]:
        trials = nas.evaluate(
            ["mha", "uniform"], data="digits", overrides=TINY, seeds=2, backend="local"
        )
        found = {(t.name, t.repeat): t.evaluation for t in trials}
        assert len(found) == 4
        assert all(e.is_ok for e in found.values())
        return [found[key].objectives["accuracy"] for key in sorted(found)]

    first = accuracies()
    assert first == accuracies()
    assert first[0] != first[1]  # another seed is another training


def test_two_names_of_one_mechanism_are_trained_once() -> None:
    """At two heads gqa and mqa have one key and value head both."""
    trials = list(nas.evaluate(["gqa", "mqa"], data="digits", overrides=TINY, backend="local"))
    assert {t.name for t in trials} == {"gqa", "mqa"}
    assert trials[0].evaluation is trials[1].evaluation


def test_a_search_from_python(tmp_path: Path) -> None:
    space = tmp_path / "own.yaml"
    fields = "".join(f", {key}: {value}" for key, value in TINY.items())
    space.write_text(
        "name: own\nnodes: {max: 4}\nprimitives: {scaled_dot_product: , softmax: , uniform: , "
        "weighted_sum: }\nmechanisms: [mha]\n"
        f"task: {{name: vit-cifar10, data: digits{fields}}}\n"
    )
    ended = nas.search(
        str(space), generations=2, population=2, backend="local", runs=tmp_path / "runs"
    )
    assert ended.status == "finished"
    assert ended.counts.evaluated == 4
    genome = nas.load_genome(f"{ended.folder}/best")
    assert nas.build_attention(genome, dim=16, heads=2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"space": "nope"}, "quickstart"),
        ({"space": "quickstart", "population": 0}, "population"),
        ({"space": "quickstart", "workers": -1, "data": "digits"}, "workers: found -1"),
        ({"space": "quickstart", "algorithm": "nsga3"}, "nsga2"),
        ({"space": "quickstart", "task": "vit"}, "vit-cifar10"),
        ({"space": "quickstart", "data": "imagefolder:/nowhere/at/all"}, "/nowhere/at/all"),
        ({"space": "quickstart", "data": "digits", "backend": "rya"}, "ray"),
    ],
)
def test_what_cannot_be_is_said_before_a_folder_is_made(
    tmp_path: Path, arguments: dict[str, object], words: str
) -> None:
    with pytest.raises(NasError, match=words):
        nas.search(runs=tmp_path / "runs", **arguments)  # type: ignore[arg-type]
    assert not (tmp_path / "runs").exists()


def test_nothing_illegal_is_trained(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(
        '{"graph_def": [{"op": "scaled_dot_product", "inputs": ["q", "k"]}, '
        '{"op": "softmax", "inputs": [0]}, {"op": "weighted_sum", "inputs": [1, "k"]}]}'
    )
    with pytest.raises(ViolationError, match="values_from"):
        list(nas.evaluate([str(path)], data="digits", backend="local"))


def test_a_count_of_seeds_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="seeds: found 0"):
        list(nas.evaluate(["mha"], seeds=0))
