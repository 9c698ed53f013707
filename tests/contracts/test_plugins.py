"""The examples of docs/extending.md: each joins its family and passes the conformance kit."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from nas.common.config import dump_yaml
from nas.common.errors import ConfigError, NasWarning
from nas.common.registry import Registry
from nas.costs import CostContext, attention_cost, costs_of
from nas.genome import ModelSizes
from nas.genome.mechanisms import mechanism
from nas.genome.primitives.base import REGISTRY
from nas.tasks import TASKS
from nas.testing import check_mechanism, check_primitive
from tests.genomes import ATTENTION_TO_FIRST, build
from tests.searching.driving import drive, proposer_of
from tests.tasks.contract import check_task

ROOT = Path(__file__).resolve().parents[2]
TINY = {
    "width": 8,
    "depth": 1,
    "heads": 2,
    "epochs": 1,
    "batch_size": 32,
    "train_examples": 64,
    "validation_examples": 32,
}
ENTRY_POINTS = """
[nas.tasks]
pointer = tests.plugins.task
honest_pointer = tests.plugins.metric
[nas.costs]
cache_bytes_at_4096 = tests.plugins.objective
[nas.algorithms]
hill-climbing = tests.plugins.algorithm
[nas.exports]
dot = tests.plugins.export
[nas.primitives]
squared_score = tests.plugins.primitive
[nas.mechanisms]
gated_mha = tests.plugins.mechanism
"""
PROGRAM = """
import sys
sys.path[:0] = [{root!r}, "."]
import nas.cli
statuses = []
for line in sys.argv[1:]:
    try:
        nas.cli.main(line.split())
    except SystemExit as ended:
        statuses.append(ended.code)
print(*statuses)
"""
SPACE = """
name: plugins
nodes: {max: 6}
primitives: {scaled_dot_product: {}, squared_score: {}, softmax: {}, weighted_sum: {}, gelu: {}}
projections: {has_wq: [true, false], has_wo: [true, false]}
mechanisms: [mha]
objectives: [quality, overconfidence, cache_bytes_at_4096]
task: {name: tiny.yaml}
"""


def squared(module: Any, query: Tensor, key: Tensor) -> Tensor:
    return (query @ key.mT) ** 2 / query.shape[-1]


def moving_average(module: Any, tokens: Tensor, mask: Tensor | None) -> Tensor:
    share, averages = torch.sigmoid(module.rate[:, 0]), [torch.zeros_like(tokens[:, :, 0])]
    for token in tokens.unbind(dim=2):
        averages.append(share * averages[-1] + (1 - share) * token)
    return torch.stack(averages[1:], dim=2)


@pytest.mark.usefixtures("restored_registries")
def test_examples_pass_the_conformance_kit() -> None:
    for name in ("primitive", "mechanism", "metric", "algorithm"):
        import_module(f"tests.plugins.{name}")
    check_primitive("squared_score", squared)
    check_mechanism(build(("squared_score", "qk"), ("softmax", [0]), ("weighted_sum", [1, "v"])))
    check_mechanism("gated_mha")
    for kind in ("pointer", "honest_pointer"):
        check_task(TASKS[kind](name="tiny", **TINY))  # type: ignore[call-arg]
    assert drive(proposer_of("hill-climbing"), 25) == drive(proposer_of("hill-climbing"), 25)


@pytest.mark.usefixtures("restored_registries")
def test_example_primitives_pass_the_conformance_kit_and_are_counted() -> None:
    for name in ("moving_average", "normal_map"):
        import_module(f"tests.plugins.{name}")
    check_primitive("moving_average", moving_average)
    average, x = REGISTRY["moving_average"], torch.randn(1, 2, 7, 4)
    module = average.module(heads=2)
    assert average.recur is not None
    first, state = average.recur(module, None, x[:, :, :3])
    last, _ = average.recur(module, state, x[:, :, 3:])
    torch.testing.assert_close(torch.cat((first, last), dim=2), module(x))
    check_primitive("normal_map", lambda module, tokens: 0.5 * torch.erfc(-tokens / 2**0.5))
    heads, width, n = 2, 8, 9
    mha = attention_cost(mechanism("mha").genome, dim=16, heads=heads, tokens=n)
    costs = [
        attention_cost(build((name, "v"), *ATTENTION_TO_FIRST), dim=16, heads=heads, tokens=n)
        for name in ("moving_average", "normal_map")
    ]
    assert costs[0]["macs"] == mha["macs"] + heads * n * n * width
    assert costs[1]["macs"] == mha["macs"]
    assert costs[1]["elementwise"] == mha["elementwise"] + heads * n * width


@pytest.mark.usefixtures("restored_registries")
def test_example_cost_is_counted_without_training() -> None:
    name = import_module("tests.plugins.objective").MEASURE.name
    context = CostContext(ModelSizes(64, 4, 2, 65), False, False, {})
    resolved = {n: context.resolve(mechanism(n).genome) for n in ("mha", "mqa")}
    bytes_of = {n: costs_of(genome, context, [name])[name] for n, genome in resolved.items()}
    # Two layers, keys and values, 16 bits: 64 numbers each for all heads, 16 for one.
    assert bytes_of == {"mha": 4096 * 2 * 2 * 2 * 64, "mqa": 4096 * 2 * 2 * 2 * 16}


GOOD = "from trial import FAMILY\nFAMILY.register('good')(1)\n"
BAD = "from trial import FAMILY\nFAMILY.register('bad')(2)\n"
FAULTS = {
    "import no_such_package": "ModuleNotFoundError: No module named 'no_such_package'",
    "raise SystemExit(3)": "SystemExit: 3",
    "raise ValueError('two\\nlines')": "ValueError: two lines",
    "def": "SyntaxError: ",
    "FAMILY.register('good')(3)": "ConfigError: good and bad both have a trial 'good'",
    "FAMILY.register('wrong')('a text')": "TypeError: ",
}


def install(folder: Path, points: str, version: str = "1.0", **modules: str) -> None:
    """Write the files that pip installs of a package of plug-ins."""
    info = folder / "plugins.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: plugins\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(points)
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)


@pytest.fixture
def family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry[int]]:
    """An empty registry of numbers, whose plug-ins are installed in ``tmp_path``."""
    trial: Any = ModuleType("trial")
    trial.FAMILY = Registry("trial", "nas.trials", check=lambda member: member + 1)
    monkeypatch.setitem(sys.modules, "trial", trial)
    monkeypatch.syspath_prepend(tmp_path)
    yield trial.FAMILY
    for name in ("good", "bad", "shared"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("text", FAULTS)
def test_broken_plugin_is_reported_and_isolated(
    text: str, family: Registry[int], tmp_path: Path
) -> None:
    points = "[nas.trials]\nfirst = good\nsecond = bad\n"
    install(tmp_path, points, good=GOOD, bad=f"{BAD}{text}\n")
    named = "The plug-in 'second' of plugins 1.0, which offers names of nas.trials here"
    complaint = f"{named}, is broken: {FAULTS[text]}"
    with pytest.warns(NasWarning) as warned:
        assert dict(family) == {"good": 1}
    assert [str(w.message).startswith(complaint) for w in warned] == [True]
    for _ in range(2):  # and again, without another warning
        with pytest.raises(ConfigError, match="no trial 'bad'; expected one of good") as error:
            family["bad"]
        assert complaint in str(error.value)
    assert [(p.name, p.members, bool(p.fault)) for p in family.plugins()] == [
        ("first", ("good",), False),
        ("second", (), True),
    ]


def test_installed_plugins_take_part_in_a_search(tmp_path: Path) -> None:
    """Plug-ins of an installed package, found by their entry points, from the command line."""
    install(tmp_path, ENTRY_POINTS)
    task = {"name": "tiny", "kind": "honest_pointer", **TINY}
    (tmp_path / "tiny.yaml").write_text(dump_yaml(task))
    (tmp_path / "space.yaml").write_text(SPACE)

    def nas(*lines: str) -> tuple[str, str, list[int]]:
        """Run command lines in one process; return both streams and the exit statuses."""
        command = [sys.executable, "-c", PROGRAM.format(root=str(ROOT)), *lines]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        *printed, statuses = done.stdout.splitlines(keepends=True)
        return "".join(printed), done.stderr, [int(word) for word in statuses.split()]

    options = "--algorithm hill-climbing --gens 2 --pop 2 --backend local --run r"
    out, err, statuses = nas(
        f"search --space space.yaml {options}", "front r --json", "export r/best -o best.dot"
    )
    assert statuses == [0, 0, 0], out + err
    assert '"overconfidence"' in out
    assert '"cache_bytes_at_4096"' in out
    assert (tmp_path / "best.dot").read_text().startswith("digraph")

    # Another version with a broken plug-in, which changes an exit status and nothing else.
    broken = ENTRY_POINTS.replace("tests.plugins.export", "no_such_module")
    install(tmp_path, broken, version="2.0")
    out, err, statuses = nas("doctor", "export mha -o mha.dot")
    assert statuses == [1, 2], out + err
    assert "ModuleNotFoundError: No module named 'no_such_module'" in out
    for group, name in (("mechanisms", "gated_mha"), ("tasks", "pointer")):
        assert re.search(rf"plug-in {name}: +nas\.{group} of plugins 2\.0: {name}\n", out)
    assert "there is no export format 'dot'" in err
