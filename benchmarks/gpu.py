"""What a GPU makes of it: training steps by their ways, candidates an hour, and long sequences.

Three tables, on a CUDA device alone (without one, a sentence and nothing else):

- a step of the task vit-cifar10 eagerly and as a CUDA graph;
- candidates trained in an hour by one worker and by several that share the GPU;
- a block forward and backward in bfloat16 against the same projections around
  F.scaled_dot_product_attention, at 1,024 to 16,384 tokens; what does not fit is shown as such.

Times are elapsed, as processor time says nothing of a GPU, and the median round counts.
``--genome SOURCE`` adds genomes to the third table: an exported champion, for one.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Mapping, Sequence
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
STEPS: Final = 50  # of a round
EAGER, GRAPH = "eager", "cuda graph"
WORKERS: Final = (1, 2, 4, 8)
CANDIDATES: Final = 24  # of each number of workers
DIM, HEADS = 512, 8
TOKENS: Final = (1024, 2048, 4096, 8192, 16384)
FUSED: Final = "F.scaled_dot_product_attention"

Work = Callable[[], None]


def gpu(options: argparse.Namespace) -> list[Figure]:
    """All three tables, or that there is no GPU."""
    if not torch.cuda.is_available():
        print("\ngpu: PyTorch sees no CUDA device here, and this benchmark needs one; left out.")
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
    """Milliseconds of a training step by each way, and how many times as fast as eagerly."""
    print(f"\n{task.name}: a step of {task.batch_size} images, median of {rounds} rounds")
    figures = []
    for name in GENOMES:
        works = {form: _training(task, data, name, form, device, count) for form in (EAGER, GRAPH)}
        samples = _elapsed(works, rounds, device)
        for form, taken in samples.items():
            figures.append(median(f"{name}, {form}", [1e3 * s / count for s in taken], "ms a step"))
        figures.append(_ratio(f"{name}, {EAGER} / {GRAPH}", samples[EAGER], samples[GRAPH]))
    _print(figures)
    return figures


def _training(
    task: Task, data: Data, name: str, form: str, device: torch.device, count: int
) -> Work:
    """Some steps of a training that never ends; what was asked for must be what runs."""
    model = build_model(task.resolve(mechanism(name).genome), task, data, 0).to(device)
    train = task.examples(data, "train", device, torch.bfloat16)
    # One rate throughout: how many steps there will be is not known.
    constant = task.model_copy(update={"schedule": "constant"})
    optimizer = ScheduledAdamW(model.parameters(), constant, 1)
    learn = TrainStep(model, task, train, "bfloat16", device, optimizer)
    size = min(task.batch_size, len(train))
    chosen = torch.arange(size, device=device)
    repeated = Steps(learn, size, None if form == EAGER else graphs_on(device))
    model.train()
    repeated(chosen)
    print(f"  {name}, {form}: {repeated.execution}")

    def work() -> None:
        for _ in range(count):
            repeated(chosen)

    return work


def candidates(
    task: Task,
    data: Data,
    evaluator: Callable[[Task, Data, int], Evaluator],
    numbers: Sequence[int] = WORKERS,
    count: int = CANDIDATES,
) -> list[Figure]:
    """Candidates an hour by numbers of workers: mechanisms of the collection in turn."""
    print(f"\n{task.name}: candidates an hour, {count} trainings of {task.epochs} epochs")
    figures = []
    for workers in numbers:
        made = evaluator(task, data, workers)
        try:
            # Each worker's first training loads libraries and kernels.
            list(run_trials(made, _trials(task, workers, seed=1)))
            start = time.perf_counter()
            done = [evaluation for _, evaluation in run_trials(made, _trials(task, count, seed=0))]
            seconds = time.perf_counter() - start
        finally:
            made.close()
        failed = sum(not evaluation.is_ok for evaluation in done)
        ran = ", ".join(sorted({evaluation.execution for evaluation in done}))
        print(f"  {workers} workers: {failed} failed; {ran or 'steps of an unknown kind'}")
        figures.append(single(f"{workers} workers", 3600 * len(done) / seconds, "candidates/h"))
    _print(figures)
    return figures


def _shared(task: Task, data: Data, workers: int) -> Evaluator:
    """Workers that have one GPU together."""
    shared = Execution(workers=workers, gpus_per_worker=1 / workers)
    return RayEvaluator(task, data, shared)


def _trials(task: Task, count: int, seed: int) -> list[Trial]:
    """Mechanisms in turn, with other seeds when they come round."""
    known = [task.resolve(m.genome) for m in MECHANISMS.values() if _exists(m.genome, task)]
    trials = []
    for number in range(count):
        resolved = known[number % len(known)]
        trials.append(Trial(resolved.key, resolved.genome, training_seed(seed, "gpu", number)))
    return trials


def _exists(genome: Genome, task: Task) -> bool:
    """Whether the task's heads can be cut as it wants them."""
    try:
        build_attention(genome, task.width, task.heads)
    except NasError:
        return False
    return True


def attention(
    genomes: Mapping[str, Genome],
    device: torch.device,
    rounds: int,
    lengths: Sequence[int] = TOKENS,
) -> list[Figure]:
    """Milliseconds of one sequence forward and backward, and times as long as fused attention."""
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
    """One length: the forms that fit, in turn."""
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
    wanted, above = [x, *form.parameters()], torch.ones_like(x)

    def work() -> None:
        torch.autograd.grad(form(x), wanted, above, allow_unused=True)

    return work


def _peak_mib(work: Work, device: torch.device) -> float:
    """The most that one pass holds beyond weights and input; only a GPU is asked."""
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
    """Elapsed seconds in each round; the device is waited for."""

    def waited(work: Work) -> Work:
        def both() -> None:
            work()
            if device.type == "cuda":
                torch.cuda.synchronize(device)

        return both

    ended = {name: waited(work) for name, work in works.items()}
    return interleaved(ended, rounds, clock=time.perf_counter)


def _ratio(name: str, slow: Sequence[float], fast: Sequence[float]) -> Figure:
    """The median of the rounds' ratios."""
    return median(name, [a / b for a, b in zip(slow, fast, strict=True)], TIMES)


def _print(figures: Sequence[Figure]) -> None:
    for figure in figures:
        print(f"  {figure.name:52}{figure!s:>20}   {figure.spread}", flush=True)
