"""The examples of docs/extending.md: each joins its family and does what its members promise."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from nas.common.errors import ConfigError, NasWarning
from nas.common.registry import Registry
from nas.genome.canonical import canonicalise, digest
from nas.genome.mechanisms import mechanism
from nas.space.validation import load_policy, validate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nas.tasks import Task

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
gated_attention = tests.plugins.mechanism
[nas.hosts]
plain = tests.plugins.host
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


def joined(registry: Registry[Any], module: str, name: str) -> Any:
    """A member that an example registers."""
    found = import_module(f"tests.plugins.{module}")
    assert name in registry.names()
    assert registry.get(name) in vars(found).values()
    return registry.get(name)


@pytest.fixture(autouse=True)
def _leaves_nothing() -> Iterator[None]:
    """What an example registers is not there for other tests."""
    from nas.costs import COSTS
    from nas.exporting import EXPORTS
    from nas.genome.mechanisms import MECHANISMS
    from nas.searching.algorithm import ALGORITHMS
    from nas.surgery.hosts import HOSTS
    from nas.tasks import TASKS

    families = (TASKS, ALGORITHMS, COSTS, EXPORTS, MECHANISMS, HOSTS)
    before = [dict(registry.items()) for registry in families]
    yield
    for registry, members in zip(families, before, strict=True):
        registry._members = members
    for name in [m for m in sys.modules if m.startswith("tests.plugins.")]:
        del sys.modules[name]


def train(task: Task, seed: int = 0) -> Any:
    from nas.evaluation.local import LocalEvaluator
    from nas.evaluation.trial import Trial, run_trials

    genome = canonicalise(mechanism("mha").genome)
    evaluator = LocalEvaluator(task, task.load())
    ((_, evaluation),) = run_trials(evaluator, [Trial(digest(genome), genome, seed)])
    evaluator.close()
    return evaluation


def test_task_family_is_registered_and_trained() -> None:
    from nas.tasks import TASKS

    task = joined(TASKS, "task", "pointer")(name="tiny", **TINY)
    evaluation = train(task)
    assert evaluation.is_ok, evaluation.error
    assert set(evaluation.metrics) == {"accuracy"}
    assert train(task).metrics == evaluation.metrics
    assert task.load().digest == task.load().digest


def test_task_separates_attention_from_a_mean() -> None:
    from nas.evaluation.local import LocalEvaluator
    from nas.evaluation.trial import Trial, run_trials
    from nas.tasks import TASKS

    family = joined(TASKS, "task", "pointer")
    task = family(name="long", width=32, depth=1, epochs=8, train_examples=2000, learning_rate=1e-2)
    names = ["mha", "uniform"]
    genomes = {n: canonicalise(mechanism(n).genome) for n in names}
    trials = [Trial(n, genomes[n], 0) for n in names]
    found = {t.key: e for t, e in run_trials(LocalEvaluator(task, task.load()), trials)}
    accuracy = {name: found[name].metrics["accuracy"] for name in names}
    assert accuracy["mha"] > accuracy["uniform"] + 0.5, accuracy


def test_metric_is_declared_and_measured() -> None:
    from nas.tasks import TASKS

    task = joined(TASKS, "metric", "honest_pointer")(name="tiny", **TINY)
    assert [m.name for m in task.metrics(task.load())] == ["accuracy", "overconfidence"]
    evaluation = train(task)
    assert evaluation.is_ok, evaluation.error
    assert 0 <= evaluation.metrics["overconfidence"] <= 1


def test_cost_is_counted_without_training() -> None:
    from nas.costs import COSTS, CostContext, costs_of
    from nas.genome import ModelSizes

    name = "cache_bytes_at_4096"
    joined(COSTS, "objective", name)
    setting = CostContext(ModelSizes(64, 4, 2, 65), False, False, {})
    resolved = {n: setting.resolve(mechanism(n).genome) for n in ("mha", "mqa")}
    bytes_of = {n: costs_of(one, setting, [name])[name] for n, one in resolved.items()}
    # Two layers, keys and values, 16 bits: 64 numbers each for all heads, 16 for one.
    assert bytes_of == {"mha": 4096 * 2 * 2 * 2 * 64, "mqa": 4096 * 2 * 2 * 2 * 16}


def test_export_format_is_written(tmp_path: Path) -> None:
    import nas
    from nas.exporting import EXPORTS

    assert joined(EXPORTS, "export", "dot").suffix == ".dot"
    nas.export("mha", tmp_path / "mha.dot", format="dot")
    text = (tmp_path / "mha.dot").read_text()
    assert text.count("->") == 5
    assert '"1" [label="softmax"];' in text


def test_algorithm_proposes_and_learns() -> None:
    from nas.searching.algorithm import ALGORITHMS, SearchContext
    from nas.searching.results import Attempt, TrialResult

    class Counting:
        """Operators that say which genome they were given."""

        def sample(self, rng: np.random.Generator) -> Any:
            return mechanism("mha").genome

        def mutate(self, genome: Any, rng: np.random.Generator, strength: int = 1) -> Any:
            return genome, f"mutated {strength}"

        def crossover(self, a: Any, b: Any, rng: np.random.Generator) -> Any:
            return a, "crossed"

    make = joined(ALGORITHMS, "algorithm", "hill-climbing")
    algorithm = make(SearchContext(Counting(), (), 2, (None, None), 0, filter=None, archive=None))
    rng = np.random.default_rng
    assert algorithm.propose(rng(0), 0) == Attempt(mechanism("mha").genome, "sample")
    good, bad = mechanism("qana").genome, mechanism("sqa").genome
    algorithm.tell(
        [
            TrialResult(0, bad, "bad", "bad", (-0.1, 900.0)),
            TrialResult(1, good, "good", "good", (-0.9, 100.0)),
        ]
    )
    algorithm.tell([TrialResult(2, bad, "failed", "failed", None)])
    wanted = Attempt(good, "mutated 1", parents=("good",))
    assert [algorithm.propose(rng(seed), 0) for seed in range(5)] == [wanted] * 5
    assert algorithm.propose(rng(0), 6).operator == "sample"


def test_primitive_equals_its_reference() -> None:
    program = """
import torch
from nas import Genome
from nas.compiler import build_attention, formula_of, make_plan
import tests.plugins.primitive
from nas.genome.primitives import get
genome = Genome.from_dict({"graph_def": [
    {"op": "squared_score", "inputs": ["q", "k"]},
    {"op": "softmax", "inputs": [0]},
    {"op": "weighted_sum", "inputs": [1, "v"]}]})
block = build_attention(genome, 8, 2).double()
reference = build_attention(genome, 8, 2, reference=True).double()
reference.load_state_dict(block.state_dict())
x = torch.randn(2, 5, 8, dtype=torch.float64)
assert torch.allclose(block(x), reference(x), atol=1e-12)
q, k, v = (w(x).view(2, 5, 2, 4).transpose(1, 2) for w in (block.wq, block.wk, block.wv))
out = ((q @ k.mT) ** 2 / 4).softmax(-1) @ v
assert torch.allclose(block(x), block.wo(out.transpose(1, 2).flatten(2)), atol=1e-12)
print(formula_of(make_plan(genome)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(softmax((Q·Kᵀ)²/d)·V)·W_O\n"


def test_mechanism_is_legal_and_runs_at_every_size() -> None:
    import torch

    from nas import build_attention
    from tests.plugins.mechanism import gated_attention

    assert gated_attention.about
    assert not validate(gated_attention.genome, load_policy("score_normalize_aggregate"))
    for dim, heads in ((8, 2), (24, 4)):
        block = build_attention(gated_attention.genome, dim, heads)
        assert block(torch.randn(2, 5, dim)).shape == (2, 5, dim)


GOOD = "from trial import FAMILY\nFAMILY.register('good')(1)\n"
OFFER = "from trial import FAMILY\nFAMILY.register('own')(2)\n"
FAULTS = {
    "import no_such_package": "ModuleNotFoundError: No module named 'no_such_package'",
    "raise SystemExit(3)": "SystemExit: 3",
    "raise KeyboardInterrupt": "KeyboardInterrupt",
    "raise type('Odd', (BaseException,), {})('two\\nlines')": "Odd: two lines",
    "def": "SyntaxError: ",
    "FAMILY.register('good')(3)": "ConfigError: good and bad both have a trial 'good'",
    "FAMILY.register('wrong')('a text')": "TypeError: ",
}


def install(folder: Path, points: str, version: str = "1.0", **modules: str) -> None:
    """What pip would leave there of a package of plug-ins."""
    info = folder / "plugins.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: plugins\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(points)
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)


@pytest.fixture
def family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry[int]]:
    """An empty family of numbers, and a folder to install plug-ins of it in."""
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
    points = "[nas.trials]\nfirst = good\nown = bad\n"
    install(tmp_path, points, good=GOOD, bad=f"{OFFER}{text}\n")
    named = "The plug-in 'own' of plugins 1.0, which offers names of nas.trials here"
    complaint = f"{named}, is broken: {FAULTS[text]}"
    with pytest.warns(NasWarning) as told:
        assert dict(family) == {"good": 1}
    assert [str(w.message).startswith(complaint) for w in told] == [True]
    for _ in range(2):  # and again, without another warning
        with pytest.raises(
            ConfigError, match="there is no trial 'own'; expected one of good"
        ) as no:
            family["own"]
        assert complaint in str(no.value)
    assert [(p.name, p.members, bool(p.fault)) for p in family.plugins()] == [
        ("first", ("good",), False),
        ("own", (), True),
    ]


def test_plugin_imported_by_a_broken_one_is_registered(
    family: Registry[int], tmp_path: Path
) -> None:
    points = "[nas.trials]\na = bad\nb = shared\n"
    install(tmp_path, points, shared=GOOD, bad="import shared\nraise ValueError\n")
    with pytest.warns(NasWarning, match="'a' of plugins"):
        assert dict(family) == {"good": 1}
    assert [p.members for p in family.plugins()] == [(), ("good",)]


@pytest.mark.parametrize("is_swallowed", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_while_loading_a_plugin_is_raised(
    family: Registry[int], tmp_path: Path, number: int, is_swallowed: bool
) -> None:
    text = f"os.kill(os.getpid(), {number:d}); time.sleep(5)"
    tried = f"try: {text}\nexcept BaseException: pass" if is_swallowed else text
    text = f"import os, time\n{tried}\n"
    install(tmp_path, "[nas.trials]\na = bad\n", bad=text)
    kept = signal.signal(signal.SIGTERM, signal.default_int_handler)  # as `nas` does
    try:
        with pytest.raises(KeyboardInterrupt):
            family.names()
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGTERM, kept)


def test_mechanism_with_unknown_primitives_is_refused() -> None:
    from nas.common.errors import GenomeError
    from nas.genome.mechanisms import MECHANISMS
    from nas.genome.mechanisms.base import dot_product, scored

    MECHANISMS._check(mechanism("mha"))
    for genome in (scored("no_such_score"), dot_product(kv_heads="some"), scored("softmax")):
        with pytest.raises(GenomeError):
            MECHANISMS._check(replace(mechanism("mha"), genome=genome))


def test_installed_plugins_take_part_in_a_search(tmp_path: Path) -> None:
    """As an installed package offers them: by entry points, from the command line."""
    install(tmp_path, ENTRY_POINTS)
    fields = "".join(f"{name}: {value}\n" for name, value in TINY.items())
    (tmp_path / "tiny.yaml").write_text(f"name: tiny\nkind: honest_pointer\n{fields}")
    (tmp_path / "space.yaml").write_text(SPACE)

    def nas(*arguments: str, status: int = 0) -> tuple[str, str]:
        program = f"import sys; sys.path[:0] = [{str(ROOT)!r}, '.']; import nas.cli; nas.cli.main()"
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout, done.stderr

    options = ("--gens", "2", "--pop", "3", "--backend", "local", "--run", "r")
    nas("search", "--space", "space.yaml", "--algorithm", "hill-climbing", *options)
    front, _ = nas("front", "r", "--json")
    assert '"overconfidence"' in front
    assert '"cache_bytes_at_4096"' in front
    nas("export", "r/best", "-o", "best.dot", "--format", "dot")
    assert (tmp_path / "best.dot").read_text().startswith("digraph")

    # Another version, and one plug-in broken: named, counted as an answer, and in nobody's way.
    broken = ENTRY_POINTS.replace("tests.plugins.export", "no_such_module")
    install(tmp_path, broken, version="2.0")
    said, _ = nas("plugins", status=1)
    assert "broken: ModuleNotFoundError: No module named 'no_such_module'" in said
    for group, name in (
        ("mechanisms", "gated_attention"),
        ("hosts", "plain"),
        ("tasks", "pointer"),
    ):
        assert re.search(rf"nas\.{group} +{name} +plugins 2\.0 +{name}\n", said)
    _, told = nas("resume", "r", "--gens", "3", "--backend", "local")
    assert "plugins was 1.0 and is 2.0" in told
    _, told = nas("export", "mha", "-o", "mha.dot", "--format", "dot", status=2)
    assert "there is no export format 'dot'" in told
    assert told.count("The plug-in 'dot' of plugins 2.0") == 2
