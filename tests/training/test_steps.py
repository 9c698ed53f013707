"""Steps by a graph: warm-ups leave no trace, replays see new batches, failures run eagerly.

``Recording`` stands in for CUDA: its replays run the captured operations again, with the tensors
and the numbers of the capture and without any Python of the work.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nas.costs.timing.calibration import designs
from nas.evaluation.trainer import build_model
from nas.genome.mechanisms import MECHANISMS, mechanism
from nas.genome.primitives import names
from nas.tasks import load_task
from nas.training.optimizers import ScheduledOptimizer
from nas.training.steps import Steps, TrainStep
from tests.genomes import build
from tests.training.recording import Recording

CPU = torch.device("cpu")
SIZE = 16


class Failing(Recording):
    """A capture that fails at its end."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def capture(self, work):
        super().capture(work)
        raise self.error


@pytest.fixture(scope="module")
def digits():
    return task_for().load()


def task_for(**overrides):
    small = {"width": 16, "heads": 2, "image_size": 8, "epochs": 2, "train_images": 72,
             "validation_images": 40, "batch_size": SIZE, "precision": "float32"}  # fmt: skip
    return load_task("vit-cifar10", data="digits", overrides=small | overrides)


def train_step(digits, name="mha", **overrides):
    return train_step_for(task_for(**overrides), digits, name)


def train_step_for(task, digits, name="mha"):
    genome = name if not isinstance(name, str) else mechanism(name).genome
    model = build_model(task.resolve(genome), task, digits, seed=0)
    optimizer = ScheduledOptimizer(model, task, 20)
    examples = task.examples(digits, "train", CPU, torch.float32)
    step = TrainStep(model, task, examples, task.precision, CPU, optimizer)
    step.checks_loss = False  # as on a GPU
    return step


def state_of(work):
    """Everything that a step changes, and the state of the generator."""
    state = [*work.model.state_dict().values(), work.totals]
    return [tensor.clone() for tensor in state] + [torch.get_rng_state()]


def run(steps, batches):
    torch.manual_seed(5)
    steps.work.model.train()
    for chosen in batches:
        steps(chosen)
    return state_of(steps.work)


def batches():
    """Five whole batches and a smaller one between them, as at the end of an epoch."""
    generator = torch.Generator().manual_seed(1)
    order = torch.cat([torch.randperm(72, generator=generator) for _ in range(2)])
    return order[:88].split([SIZE, SIZE, SIZE, SIZE, 8, SIZE])


def same(ours, theirs):
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def assert_same_as_eager(graphs, make, count=6, execution="cuda graph"):
    """Some batches leave the same state with graphs as without."""
    eager, graphed = Steps(make(), SIZE, None), Steps(make(), SIZE, graphs)
    assert same(run(graphed, batches()[:count]), run(eager, batches()[:count]))
    assert graphed.execution == execution


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("mha", {}),
        ("mha", {"augmentation": "flip_shift"}),
        ("mha", {"precision": "bfloat16", "schedule": "constant"}),
        ("mha", {"clip": 0.1, "decay": "matrices", "beta2": 0.99}),
        ("uniform", {}),
        ("gated", {}),
    ],
)
def test_graphed_steps_equal_eager_ones(digits, name, overrides):
    """Replays see each batch, each random draw and each count of a gate."""
    graphs = Recording()
    if name == "gated":
        gate = {"gate": "warmup"}
        name = build(("qana", "qk", gate), ("softmax", [0]), ("weighted_sum", [1, "v"]))
    assert_same_as_eager(graphs, lambda: train_step(digits, name, **overrides))
    assert (graphs.warm_ups, graphs.replays) == (3, 5)  # the batch of 8 runs eagerly


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_can_be_captured(digits, name):
    sizes = {"width": 32, "heads": 8, "depth": 1}
    assert_same_as_eager(Recording(), lambda: train_step(digits, name, **sizes), count=3)


def test_every_primitive_can_be_captured(digits):
    held = set()
    for genome in designs(5):
        if held >= {node.op for node in genome.nodes}:
            continue
        graphed = Steps(train_step(digits, genome, depth=1), SIZE, Recording())
        run(graphed, batches()[:2])
        assert graphed.execution == "cuda graph", genome
        held |= {node.op for node in genome.nodes}
    assert held >= set(names())


def test_a_causal_task_on_tokens_can_be_captured():
    """Batches of whole numbers, losses at some tokens alone, attention that is causal."""
    small = {"num_keys": 9, "num_values": 4, "pairs": 4, "train_examples": 72, "width": 16}
    task = load_task("recall", overrides=small)
    data = task.load()
    assert_same_as_eager(Recording(), lambda: train_step_for(task, data))


def test_a_failed_capture_runs_eagerly_and_is_recorded(digits):
    error = RuntimeError("operation not permitted when stream is capturing\nmore lines")
    reason = "RuntimeError: operation not permitted when stream is capturing"
    failed = f"cpu, eager: capture failed ({reason})"
    assert_same_as_eager(Failing(error), lambda: train_step(digits), execution=failed)


def test_clip_bounds_the_norm_of_all_gradients(digits):
    norms = []
    for clip in (None, 0.1):
        work = train_step(digits, clip=clip)
        work(torch.arange(SIZE))
        norms.append(nn.utils.get_total_norm([p.grad for p in work.model.parameters()]).item())
    assert norms[0] > 0.2
    assert norms[1] == pytest.approx(0.1, rel=1e-4)


class Replacing(nn.Module):
    """Replaces a buffer or a Python number at each pass: a graph would not see the change."""

    def __init__(self, passes):
        super().__init__()
        if isinstance(passes, torch.Tensor):
            self.register_buffer("passes", passes)
        else:
            self.passes = passes

    def forward(self, x):
        self.passes = self.passes + 1
        return x


@pytest.mark.parametrize("passes", [torch.zeros(()), 0])
def test_replaced_state_prevents_the_capture(digits, passes):
    work = train_step(digits)
    work.model.layers[0].attention = Replacing(passes)
    steps = Steps(work, SIZE, Recording())
    run(steps, batches())
    assert "a step replaces layers.0.attention.passes" in steps.execution
    assert work.model.layers[0].attention.passes == 6
