"""Trainings on a GPU, on the emulated runtime: captured as graphs, without waiting for results."""

from __future__ import annotations

import pytest
import torch

from nas.costs.timing.calibration import designs
from nas.evaluation.trainer import train_candidate
from nas.evaluation.trial import Trial
from nas.genome.mechanisms import MECHANISMS, mechanism
from nas.genome.primitives import names
from nas.tasks import load_task
from nas.tasks.images.task import ImageTask
from nas.training.cuda_graphs import CudaGraphs
from tests.cuda import emulation

SMALL = {"image_size": 8, "width": 32, "heads": 8, "depth": 2, "train_images": 256,
         "validation_images": 128, "batch_size": 64, "epochs": 2}  # fmt: skip
NODES = {"mha": 220, "qana": 300}
"""Limits on the number of operations in a captured training step."""


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


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_named_mechanism_trains_as_a_graph(name, task, data):
    evaluation = train(mechanism(name).genome, task, data)
    assert evaluation.execution == "cuda graph"
    assert emulation.counter("capture_faults") == 0
    assert emulation.counter("replays") == 2 * 256 // 64


def test_every_primitive_trains_as_a_graph(task, data):
    held = set()
    for genome in designs(5):
        if not held >= {node.op for node in genome.nodes}:
            assert train(genome, task, data).execution == "cuda graph", genome
            held |= {node.op for node in genome.nodes}
    assert held >= set(names())


@pytest.mark.parametrize("name", NODES)
def test_a_graph_has_few_nodes(name, task, data):
    train(mechanism(name).genome, task, data)
    assert emulation.counter("replayed_nodes") / emulation.counter("replays") < NODES[name]


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
