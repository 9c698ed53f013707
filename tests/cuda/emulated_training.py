"""Trainings on a GPU, on the emulated runtime: captured as graphs, without waiting for results."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nas.common.captures import CudaGraphs
from nas.costs.timing.calibration import designs
from nas.evaluation.trainer import train_candidate
from nas.evaluation.trial import Trial
from nas.genome.mechanisms import MECHANISMS, mechanism
from nas.genome.primitives import names
from nas.tasks import load_task
from nas.tasks.images.task import ImageTask
from tests.cuda import emulation
from tests.samples import samples

SMALL = {"image_size": 8, "width": 32, "heads": 8, "depth": 2, "train_images": 256,
         "validation_images": 128, "batch_size": 64, "epochs": 2}  # fmt: skip
FEW = {"train_images": 64, "validation_images": 64, "epochs": 2}
NODES = {"mha": 130, "gqa": 140, "mqa": 140, "additive": 580, "sqa": 140, "ssqa": 130, "xsqa": 130,
         "xsmqa": 130, "lsqa": 140, "rsqa": 140, "sw_sqa": 170, "flex_sqa": 160, "qana": 200,
         "neural_attention": 370, "neural_attention_authors": 170, "patterns": 140, "messages": 140,
         "patterns_and_messages": 120, "champion_2025": 150, "uniform": 120,
         "champion_control": 120}  # fmt: skip
"""Most operations of a captured training step of vit-cifar10, by mechanism."""
BASE, OPERATION, UNIT = 120, 60, 8
"""Most operations of a step: of the model without attention; and for each layer with a mechanism,
of each operation of its genome, and of each further hidden unit that a score has for a pair."""
SPACES = sorted(path.stem for path in Path("search_spaces").glob("*.yaml"))
CAUSAL = {"attention_causal", "recall_bench"}


@pytest.fixture(scope="module")
def task():
    return load_task("vit-cifar10", data="digits", overrides=SMALL)


@pytest.fixture(scope="module")
def data(task):
    return task.load()


def train(genome, task, data):
    emulation.reset()
    evaluation = train_candidate(Trial("key", genome, 7), task, data, device="cuda")
    assert evaluation.is_ok, evaluation.error
    return evaluation


def test_torch_sees_one_gpu():
    assert torch.cuda.device_count() == 1
    assert torch.cuda.get_device_name() == "emulated GPU"


@pytest.fixture(scope="module")
def usual():
    """The task vit-cifar10 at its own sizes, with two steps, and its data."""
    task = load_task("vit-cifar10", data="digits", overrides=FEW)
    return task, task.load()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*MECHANISMS} - {*NODES}))
def test_every_other_named_mechanism_trains_as_a_graph(name, usual):
    evaluation = train(mechanism(name).genome, *usual)
    assert evaluation.execution == "cuda graph"
    assert emulation.counter("capture_faults") == 0


@pytest.mark.parametrize("name", NODES)
def test_named_mechanisms_train_as_a_graph_with_few_nodes(name, usual):
    evaluation = train(mechanism(name).genome, *usual)
    assert evaluation.execution == "cuda graph"
    assert emulation.counter("capture_faults") == 0
    assert emulation.counter("replays") == 2
    assert emulation.counter("replayed_nodes") / 2 <= NODES[name]


# They call triangular and general solvers of cuBLAS and cuSOLVER, which are not emulated.
SOLVERS = {"delta", "erase_delta", "softmax_delta", "mesa_query", "path_product"}


def test_every_primitive_trains_as_a_graph(task, data):
    held = set(SOLVERS)
    for genome in designs(5):
        ops = {node.op for node in genome.nodes}
        if not held >= ops and not ops & SOLVERS:
            assert train(genome, task, data).execution == "cuda graph", genome
            held |= {node.op for node in genome.nodes}
    assert held >= set(names())


def most_nodes(resolved, task):
    """The budget of a mechanism's training step."""
    calls = [(s, resolved.plan.call_sizes(s, *task.sizes[:2], task.sizes.tokens))
             for s in resolved.plan.steps]  # fmt: skip
    units = sum(s.primitive.passes(sizes, s.params) - 1 for s, sizes in calls if s.is_paired)
    layers = len(resolved.genome.placement.layers(task.depth))
    return BASE + layers * (OPERATION * len(calls) + UNIT * units)


@pytest.mark.slow
@pytest.mark.parametrize("space", SPACES)
def test_random_genomes_train_as_graphs_with_few_nodes(space, usual):
    task, data = usual
    if space in CAUSAL:
        few = {"train_examples": 80, "validation_examples": 64, "epochs": 2}
        task = load_task("recall", overrides=few)
        data = task.load()
    used = []
    for genome in samples(space, 200):
        resolved = task.resolve(genome)
        emulation.reset()
        evaluation = train_candidate(Trial("key", resolved.genome, 7), task, data, device="cuda")
        if evaluation.reason == "constant":
            continue
        assert evaluation.is_ok, evaluation.error
        assert evaluation.execution == "cuda graph"
        assert emulation.counter("capture_faults") == 0
        found, most = emulation.counter("replayed_nodes") / 2, most_nodes(resolved, task)
        assert found <= most, resolved.genome
        used.append((found / most, found))
    shares, nodes = map(sorted, zip(*used, strict=True))
    assert len(nodes) > 190
    print(f"{space}: {nodes[len(nodes) // 2]:.0f} nodes in the middle, {nodes[-1]:.0f} at most, "
          f"{shares[-1]:.0%} of the budget")  # fmt: skip


def test_the_precision_auto_is_bfloat16_from_a_width_of_256_on(usual):
    """In bfloat16 a step has a third more operations, which a narrow model does not repay."""
    nodes = []
    task, data = usual
    for width, precision in ((224, "float32"), (256, "bfloat16")):
        sized = task.model_copy(update={"width": width, "heads": 4})
        evaluation = train(mechanism("mha").genome, sized, data)
        assert evaluation.budget.precision == precision
        nodes.append(emulation.counter("replayed_nodes") / emulation.counter("replays"))
    assert 1.3 * nodes[0] < nodes[1] < 1.7 * nodes[0]


def test_only_the_training_step_is_captured(task):
    more = task.model_copy(update={"validation_images": 1000, "curve_images": 1000})
    train(mechanism("mha").genome, more, more.load())
    assert emulation.counter("captures") == 1


def test_a_training_leaves_no_memory_behind(usual):
    reserved = []
    for name in ("mha", "additive", "mha", "mha"):
        train(mechanism(name).genome, *usual)
        assert torch.cuda.memory_allocated() < 2**24  # the examples, and the workspace of cuBLAS
        reserved.append(torch.cuda.memory_reserved())
    assert max(reserved[2:]) <= reserved[0] < reserved[1]


def test_the_host_reads_results_once_an_epoch(task, data):
    """Not once a step: with four times the steps an epoch there are no more copies to the host."""
    copies = []
    for batch in (64, 16):
        train(mechanism("mha").genome, task.model_copy(update={"batch_size": batch}), data)
        copies.append(emulation.counter("copies_to_host"))
    assert copies[0] == copies[1]


class WaitingTask(ImageTask):
    """A plug-in's task that reads a result in every step."""

    def loss(self, model, batch):
        total, count = super().loss(model, batch)
        return total, int(count)


def test_a_task_that_waits_trains_eagerly_and_leaves_no_broken_graph(task, data):
    waiting = WaitingTask(**dict(task))
    evaluation = train(mechanism("mha").genome, waiting, data)
    assert "called a synchronizing CUDA operation" in evaluation.execution
    assert emulation.counter("captures") == 0
    assert not CudaGraphs.broken
