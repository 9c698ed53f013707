"""Steps by a graph: warm-ups leave no trace, replays see what is new, what fails goes on eagerly.

The part of CUDA is played by ``Recording``: its replays do the captured operations again, with the
tensors and the numbers of the capture and without any Python of the work.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nas.costs.timing.design import designs
from nas.evaluation.trainer import build_model
from nas.genome.mechanisms import MECHANISMS, mechanism
from nas.genome.primitives import names
from nas.tasks import load_task
from nas.tasks.layers import Dropout
from nas.training.optimizers import CapturableAdamW, ScheduledAdamW, schedule_of
from nas.training.snapshot import Snapshot, reason_of
from nas.training.stepping import Steps, graphs_on, wait_on
from nas.training.steps import EvalStep, TrainStep
from tests.training.recording import Recording

CPU = torch.device("cpu")
SIZE = 16


class Failing(Recording):
    """A capture that leaves traces and fails."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def capture(self, work):
        work()
        raise self.error


@pytest.fixture(scope="module")
def digits():
    return task_for().load()


def task_for(**overrides):
    small = {"width": 16, "heads": 2, "image_size": 8, "epochs": 2, "train_images": 72,
             "validation_images": 40, "batch_size": SIZE, "precision": "float32"}  # fmt: skip
    return load_task("vit-cifar10", data="digits", overrides=small | overrides)


def learn_for(digits, name="mha", **overrides):
    return learn_for_task(task_for(**overrides), digits, name)


def learn_for_task(task, digits, name="mha"):
    genome = name if not isinstance(name, str) else mechanism(name).genome
    model = build_model(genome, task, digits, seed=0)
    optimizer = CapturableAdamW(list(model.parameters()), task, schedule_of(task, 20))
    examples = task.examples(digits, "train", CPU, torch.float32)
    learn = TrainStep(model, task, examples, task.precision, CPU, optimizer)
    learn.is_watched = False  # as on a GPU
    return learn


def traces(work):
    """All that a step changes, and what the generator gives next."""
    state = [*work.model.state_dict().values(), *work.state]
    return [tensor.clone() for tensor in state] + [torch.get_rng_state()]


def run(steps, batches):
    torch.manual_seed(5)
    steps.work.model.train()
    for chosen in batches:
        steps(chosen)
    return traces(steps.work)


def batches():
    """Five whole ones and a smaller one in between, as at the end of an epoch."""
    generator = torch.Generator().manual_seed(1)
    order = torch.cat([torch.randperm(72, generator=generator) for _ in range(2)])
    return order[:88].split([SIZE, SIZE, SIZE, SIZE, 8, SIZE])


def same(ours, theirs):
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def assert_same_as_eager(graphs, make, count=6, execution="cuda graph"):
    """Whether some batches leave the same traces by graphs as call by call."""
    eager, graphed = Steps(make(), SIZE, None), Steps(make(), SIZE, graphs)
    assert same(run(graphed, batches()[:count]), run(eager, batches()[:count]))
    assert graphed.execution == execution
    assert graphed.has_failed == (execution != "cuda graph")


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
def test_graphed_steps_give_what_eager_ones_give(digits, genome, name, overrides):
    """Replays see each batch, each learning rate, each drawing and each count of a gate."""
    graphs = Recording()
    if name == "gated":
        gate = {"gate": "warmup", "warmup": 4}
        name = genome(("qana", "qk", gate), ("softmax", [0]), ("weighted_sum", [1, "v"]))
    assert_same_as_eager(graphs, lambda: learn_for(digits, name, **overrides))
    assert (graphs.warm_ups, graphs.replays) == (3, 5)  # the batch of 8 is done call by call


@pytest.mark.parametrize("name", MECHANISMS)
def test_graphed_steps_can_hold_every_mechanism(digits, name):
    sizes = {"width": 32, "heads": 8, "depth": 1}
    assert_same_as_eager(Recording(), lambda: learn_for(digits, name, **sizes), count=3)


def test_graphed_steps_can_hold_every_primitive(digits):
    held = set()
    for genome in designs(5):
        if held >= {node.op for node in genome.nodes}:
            continue
        graphed = Steps(learn_for(digits, genome, depth=1), SIZE, Recording())
        run(graphed, batches()[:2])
        assert graphed.execution == "cuda graph", genome
        held |= {node.op for node in genome.nodes}
    assert held >= set(names())


def test_graphed_steps_draw_a_mask_for_each_replay(digits, monkeypatch):
    """With torch's dropout, which is the backbone's on a GPU."""

    def on_a_gpu(self, x):
        return nn.functional.dropout(x, self.dropped / 2**16, self.training)

    monkeypatch.setattr(Dropout, "forward", on_a_gpu)
    assert_same_as_eager(Recording(), lambda: learn_for(digits, dropout=0.5))


def test_graphed_steps_hold_a_task_on_tokens():
    """Batches of whole numbers, losses at some tokens alone, attention that is causal."""
    small = {"num_keys": 9, "num_values": 4, "pairs": 4, "train_examples": 72, "width": 16}
    task = load_task("recall", overrides=small)
    data = task.load()
    assert_same_as_eager(Recording(), lambda: learn_for_task(task, data))


def test_graphed_steps_go_on_eagerly_where_the_capture_fails(digits):
    error = RuntimeError("operation not permitted when stream is capturing\nmore lines")
    reason = "RuntimeError: operation not permitted when stream is capturing"
    failed = f"cpu, eager: capture failed ({reason})"
    assert_same_as_eager(Failing(error), lambda: learn_for(digits), execution=failed)


def test_graphed_steps_do_not_capture_what_waits_for_a_result(digits):
    work = learn_for(digits)
    work.is_watched = True
    steps = Steps(work, SIZE, Recording())
    run(steps, batches()[:2])
    assert "aten._local_scalar_dense.default is not permitted" in steps.execution


def test_a_step_bounds_the_common_norm_of_its_gradients(digits):
    norms = []
    for clip in (None, 0.1):
        work = learn_for(digits, clip=clip)
        work(torch.arange(SIZE))
        norms.append(nn.utils.get_total_norm([p.grad for p in work.model.parameters()]).item())
    assert norms[0] > 0.2
    assert norms[1] == pytest.approx(0.1, rel=1e-4)


def test_a_recording_repeats_the_numbers_of_its_capture(digits):
    """What makes it a test of graphs: torch's own optimiser would go on at its first rate."""
    trained = []
    for graphs in (None, Recording()):
        work = learn_for(digits)
        task = task_for()
        work.optimizer = ScheduledAdamW(list(work.model.parameters()), task, 20)
        trained.append(run(Steps(work, SIZE, graphs), batches()))
    assert not same(*trained)


def test_graphed_steps_warm_up_without_a_trace(digits):
    work = learn_for(digits, augmentation="flip_shift")
    before = traces(work)
    steps = Steps(work, SIZE, Recording())
    steps._capture(torch.arange(SIZE), steps._graphs)
    assert same(traces(work), before)
    assert all(weight.grad is None for weight in work.model.parameters())


class Replacing(nn.Module):
    """Puts a new tensor in place of its buffer: a graph would go on reading the old one."""

    def __init__(self):
        super().__init__()
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, x):
        self.passes = self.passes + 1
        return x


def test_graphed_steps_notice_a_buffer_that_is_replaced(digits):
    work = learn_for(digits)
    work.model.layers[0].attention = Replacing()
    steps = Steps(work, SIZE, Recording())
    run(steps, batches())
    assert "a step replaces layers.0.attention.passes" in steps.execution
    assert work.model.layers[0].attention.passes.item() == 6


@pytest.mark.parametrize("error", [ValueError("boom"), KeyboardInterrupt()])
def test_graphed_steps_leave_a_candidates_own_fault_and_an_interrupt_to_show(digits, error):
    def fault(*_):
        raise error

    work = learn_for(digits)
    work.model.register_forward_hook(fault)
    with pytest.raises(type(error)):
        Steps(work, SIZE, Recording())(torch.arange(SIZE))


def test_graphed_steps_without_a_whole_batch_capture_nothing(digits):
    graphs = Recording()
    steps = Steps(learn_for(digits), 100, graphs)
    run(steps, batches())
    assert graphs.warm_ups == 0
    assert steps.execution == "cpu, eager: no whole batch"


def test_graphed_judging_counts_each_example_once(digits):
    found, task = [], task_for()
    for graphs in (None, Recording()):
        examples = task.examples(digits, "validation", CPU, torch.float32)
        judge = EvalStep(learn_for(digits).model, task, examples, "float32", CPU)
        judge.model.eval()
        steps = Steps(judge, SIZE, graphs)
        for chosen in torch.arange(40).split(SIZE):
            steps(chosen)
        assert judge._totals[2] == 40
        found.append(judge.metrics())
        assert judge._totals.tolist() == [0, 0, 0]  # begins again
    assert found[0] == found[1]
    assert found[0]["accuracy"] > 0


def test_snapshot_brings_back_attributes_of_modules():
    module = nn.Sequential(nn.Linear(2, 2), Replacing())
    before = Snapshot(module, (), CPU)
    module(torch.ones(1, 2))
    module[0].counted = 3
    assert before.replaced() == ["0.counted", "1.passes"]
    before.restore()
    assert before.replaced() == []
    assert module[1].passes.item() == 0


def test_reason_of_is_the_first_error_of_a_chain():
    def chain():
        try:
            raise ValueError("the first\nand more")
        finally:
            raise RuntimeError("ended a broken capture")

    with pytest.raises(RuntimeError) as caught:
        chain()
    assert reason_of(caught.value) == "ValueError: the first"
    assert reason_of(KeyError()) == "KeyError: "


def test_a_processor_has_no_graphs_and_is_not_waited_for():
    assert graphs_on(CPU) is None
    wait_on(CPU)
