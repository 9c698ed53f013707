"""Measure training steps, candidates per hour and long sequences on a GPU.

There are three tables:

- a training step of vit-cifar10, eagerly and as a CUDA graph;
- candidates trained per hour by one worker and by several workers that share the GPU;
- a block forward and backward in bfloat16, compared with the same projections around
  F.scaled_dot_product_attention, at 1,024 to 16,384 tokens; out of memory is reported.

Times are elapsed times, median over rounds, because processor time does not measure a GPU.
``--genome SOURCE`` adds a genome to the third table, for example an exported champion.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import cycle, islice
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.figures import TIMES, Figure, interleaved, median, single
from nas.common.errors import NasError
from nas.compiler import build_attention
from nas.evaluation.execution import Execution
from nas.evaluation.ray_backend import RayEvaluator
from nas.evaluation.trainer import build_model
from nas.evaluation.trial import Evaluator, Trial, run_trials, training_seed
from nas.genome.mechanisms import MECHANISMS, mechanism
from nas.store.sources import load_genome
from nas.tasks import Data, Task, load_task
from nas.training.cuda_graphs import Steps, graphs_on
from nas.training.optimizers import ScheduledAdamW
from nas.training.steps import TrainStep

if TYPE_CHECKING:
    from nas.genome import Genome

GENOMES: Final = ("mha", "qana")
STEPS: Final = 50  # per round
EAGER, GRAPH = "eager", "cuda graph"
WORKERS: Final = (1, 2, 4, 8)
CANDIDATES: Final = 24  # per number of workers
DIM, HEADS = 512, 8
TOKENS: Final = (1024, 2048, 4096, 8192, 16384)
FUSED: Final = "F.scaled_dot_product_attention"

Work = Callable[[], None]


def gpu(options: argparse.Namespace) -> list[Figure]:
    """Return the figures of all three tables; none without a CUDA device."""
    if not torch.cuda.is_available():
        print("\ngpu: skipped, because PyTorch finds no CUDA device.")
        return []
    device = torch.device("cuda")
    print(f"\n{torch.cuda.get_device_name(device)}")
    task = load_task("vit-cifar10", data=options.data)
    data = task.load()
    genomes = {name: load_genome(name) for name in (*GENOMES, *options.genome)}
    return [
        *steps(task, data, device, options.rounds),
        *candidates(task, data, _shared),
        *attention(genomes, device, options.rounds),
    ]


def steps(
    task: Task, data: Data, device: torch.device, rounds: int, count: int = STEPS
) -> list[Figure]:
    """Return milliseconds of a training step, eagerly and as a CUDA graph, and their ratio."""
    print(f"\n{task.name}: a step of {task.batch_size} images, median of {rounds} rounds")
    figures = []
    for name in GENOMES:
        works = {form: _training(task, data, name, form, device, count) for form in (EAGER, GRAPH)}
        samples = _elapsed(works, rounds, device)
        for form, taken in samples.items():
            figures.append(
                median(f"{name}, {form}", [1e3 * s / count for s in taken], "ms per step")
            )
        figures.append(_ratio(f"{name}, {EAGER} / {GRAPH}", samples[EAGER], samples[GRAPH]))
    _print(figures)
    return figures


def _training(
    task: Task, data: Data, name: str, form: str, device: torch.device, count: int
) -> Work:
    """Return a function that runs ``count`` training steps; print the kind of execution."""
    model = build_model(task.resolve(mechanism(name).genome), task, data, 0).to(device)
    train = task.examples(data, "train", device, torch.bfloat16)
    # A constant learning rate, because the number of steps is unknown.
    constant = task.model_copy(update={"schedule": "constant"})
    optimizer = ScheduledAdamW(model.parameters(), constant, 1)
    step = TrainStep(model, task, train, "bfloat16", device, optimizer)
    size = min(task.batch_size, len(train))
    indices = torch.arange(size, device=device)
    steps = Steps(step, size, None if form == EAGER else graphs_on(device))
    model.train()
    steps(indices)
    print(f"  {name}, {form}: {steps.execution}")

    def work() -> None:
        for _ in range(count):
            steps(indices)

    return work


def candidates(
    task: Task,
    data: Data,
    evaluator: Callable[[Task, Data, int], Evaluator],
    numbers: Sequence[int] = WORKERS,
    count: int = CANDIDATES,
) -> list[Figure]:
    """Return candidates per hour by number of workers, over the named mechanisms."""
    print(f"\n{task.name}: candidates per hour, {count} trainings of {task.epochs} epochs")
    figures = []
    for workers in numbers:
        pool = evaluator(task, data, workers)
        try:
            # Each worker's first training loads libraries and kernels.
            list(run_trials(pool, _trials(task, workers, seed=1)))
            start = time.perf_counter()
            evaluations = [
                evaluation for _, evaluation in run_trials(pool, _trials(task, count, seed=0))
            ]
            seconds = time.perf_counter() - start
        finally:
            pool.close()
        failed = sum(not evaluation.is_ok for evaluation in evaluations)
        execution = ", ".join(sorted({evaluation.execution for evaluation in evaluations}))
        print(f"  {workers} workers: {failed} failed; {execution or 'unknown execution'}")
        figures.append(
            single(f"{workers} workers", 3600 * len(evaluations) / seconds, "candidates/h")
        )
    _print(figures)
    return figures


def _shared(task: Task, data: Data, workers: int) -> Evaluator:
    """Return an evaluator whose workers share one GPU."""
    shared = Execution(workers=workers, gpus_per_worker=1 / workers)
    return RayEvaluator(task, data, shared)


def _trials(task: Task, count: int, seed: int) -> list[Trial]:
    """Return trials of the named mechanisms in turn, each time with another seed."""
    mechanisms = []
    for named in MECHANISMS.values():
        with suppress(NasError):  # a mechanism cannot be built with this number of heads
            build_attention(named.genome, task.width, task.heads)
            mechanisms.append(task.resolve(named.genome))
    return [
        Trial(resolved.key, resolved.genome, training_seed(seed, "gpu", number))
        for number, resolved in enumerate(islice(cycle(mechanisms), count))
    ]


def attention(
    genomes: Mapping[str, Genome],
    device: torch.device,
    rounds: int,
    lengths: Sequence[int] = TOKENS,
) -> list[Figure]:
    """Return times of one sequence forward and backward, and the ratio to fused attention."""
    print(f"\none sequence, dim {DIM}, {HEADS} heads, bfloat16: ms forward and backward, peak MiB")
    figures = []
    for tokens in lengths:
        forms: dict[str, nn.Module] = {FUSED: Fused()}
        forms |= {name: build_attention(genome, DIM, HEADS) for name, genome in genomes.items()}
        figures += compare(forms, tokens, device, rounds)
    return figures


class Fused(nn.Module):
    """The projections of standard attention around torch's fused kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.wqkv = nn.Linear(DIM, 3 * DIM, bias=False)
        self.wo = nn.Linear(DIM, DIM)

    def forward(self, x: Tensor) -> Tensor:
        streams = self.wqkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        merged = F.scaled_dot_product_attention(*streams).transpose(1, 2).flatten(2)
        out: Tensor = self.wo(merged)
        return out


def compare(
    forms: Mapping[str, nn.Module], tokens: int, device: torch.device, rounds: int
) -> list[Figure]:
    """Return the times of all blocks that fit into memory, at one length."""
    works: dict[str, Work] = {}
    for name, form in forms.items():
        work = _pass(form, tokens, device)
        try:
            mib = _peak_mib(work, device)
        except torch.OutOfMemoryError:
            gc.collect()
            torch.cuda.empty_cache()
            print(f"  {tokens:6,} tokens  {name:34}out of memory")
            continue
        works[name] = work
        print(f"  {tokens:6,} tokens  {name:34}{mib:10.1f} MiB")
    samples = _elapsed(works, rounds, device)
    figures = []
    for name, taken in samples.items():
        label = f"{name}, {tokens} tokens"
        figures.append(median(label, [1e3 * s for s in taken], "ms"))
        if name != FUSED and FUSED in samples:
            figures.append(_ratio(f"{label} / fused", taken, samples[FUSED]))
    _print(figures)
    return figures


def _pass(form: nn.Module, tokens: int, device: torch.device) -> Work:
    form.to(device, torch.bfloat16)
    x = torch.randn(1, tokens, DIM, device=device, dtype=torch.bfloat16, requires_grad=True)
    inputs, gradient = [x, *form.parameters()], torch.ones_like(x)

    def work() -> None:
        torch.autograd.grad(form(x), inputs, gradient, allow_unused=True)

    return work


def _peak_mib(work: Work, device: torch.device) -> float:
    """Return peak memory of one pass beyond weights and input in MiB; 0 on a processor."""
    if device.type == "cpu":
        work()
        return 0.0
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    work()
    torch.cuda.synchronize(device)
    return (torch.cuda.max_memory_allocated(device) - before) / 2**20


def _elapsed(
    works: Mapping[str, Work], rounds: int, device: torch.device
) -> dict[str, list[float]]:
    """Return elapsed seconds of each round, with synchronisation of the device."""

    def synchronised(work: Work) -> Work:
        def run() -> None:
            work()
            if device.type == "cuda":
                torch.cuda.synchronize(device)

        return run

    timed = {name: synchronised(work) for name, work in works.items()}
    return interleaved(timed, rounds, clock=time.perf_counter)


def _ratio(name: str, slow: Sequence[float], fast: Sequence[float]) -> Figure:
    """Return the median of the rounds' ratios."""
    return median(name, [a / b for a, b in zip(slow, fast, strict=True)], TIMES)


def _print(figures: Sequence[Figure]) -> None:
    for figure in figures:
        print(f"  {figure.name:52}{figure!s:>20}   {figure.spread}", flush=True)
