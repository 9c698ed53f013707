"""What a GPU makes of it: training steps by their ways, candidates an hour, and long sequences.

Three tables, on a CUDA device alone (without one, a sentence and nothing else):

- a step of the task vit-cifar10 eagerly and as a CUDA graph;
- candidates trained in an hour by one worker and by several that share the GPU;
- a block forward and backward, eager and compiled, against the same projections around
  F.scaled_dot_product_attention, at 1,024 to 16,384 tokens; what does not fit is shown as such.

Rounds are interleaved; times are elapsed, with the GPU waited for before and after, and the median
round counts. ``--genome SOURCE`` adds genomes to the third table: an exported champion, for one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import torch

from nas.canonical import canonicalise, resolved_digest
from nas.compiler import build_attention
from nas.evaluation.share import Execution
from nas.evaluation.trainer import build_model
from nas.evaluation.trial import Evaluator, Trial, run_trials, training_seed
from nas.mechanisms import MECHANISMS, mechanism
from nas.sources import load_genome
from nas.tasks import Data, Task, load_task
from nas.training.optimizers import make_optimizer
from nas.training.stepping import Steps, graphs_on
from nas.training.steps import TrainStep
from tests.benchmarks.elapsed import interleaved_on, median_of, print_figures, ratio_of
from tests.benchmarks.figures import Figure
from tests.benchmarks.gpu_attention import attention

if TYPE_CHECKING:
    from nas.genome import Genome

STEPS: Final = 50  # of a round
WORKERS: Final = (1, 2, 4, 8)
CANDIDATES: Final = 24  # of each number of workers
GENOMES: Final = ("mha", "qana")
EAGER, GRAPH = "eager", "cuda graph"


def gpu(options: argparse.Namespace) -> list[Figure]:
    """All three tables, or that there is no GPU."""
    if not torch.cuda.is_available():
        print("\ngpu: PyTorch sees no CUDA device here, and this benchmark needs one; left out.")
        return []
    device = torch.device("cuda")
    print(f"\n{torch.cuda.get_device_name(device)}")
    task = load_task("vit-cifar10", data=options.data)
    data = task.load()
    names = (*GENOMES, *getattr(options, "genome", ()))
    genomes = {name: load_genome(name) for name in names}
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
        samples = interleaved_on(works, rounds, device)
        for form, taken in samples.items():
            figures.append(
                median_of(f"{name}, {form}", [1e3 * s / count for s in taken], "ms a step")
            )
        figures.append(ratio_of(f"{name}, {EAGER} / {GRAPH}", samples[EAGER], samples[GRAPH]))
    print_figures(figures)
    return figures


def _training(
    task: Task, data: Data, name: str, form: str, device: torch.device, count: int
) -> Callable[[], None]:
    """Some steps of a training that never ends; what was asked for must be what runs."""
    model = build_model(mechanism(name).genome, task, data, 0).to(device)
    train = task.examples(data, "train", device, torch.bfloat16)
    # One rate throughout: how many steps there will be is not known.
    constant = task.model_copy(update={"schedule": "constant"})
    optimizer = make_optimizer(list(model.parameters()), constant, 1, device, is_capturable=True)
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
        hourly = 3600 * len(done) / seconds
        figures.append(Figure(f"{workers} workers", hourly, "candidates/h", hourly, hourly))
    print_figures(figures)
    return figures


def _shared(task: Task, data: Data, workers: int) -> Evaluator:
    """Workers that have one GPU together."""
    from nas.evaluation.ray_backend import RayEvaluator

    shared = Execution(workers=workers, gpus_per_worker=1 / workers)
    return RayEvaluator(task, data, shared)


def _trials(task: Task, count: int, seed: int) -> list[Trial]:
    """Mechanisms in turn, with other seeds when they come round."""
    genomes = [
        canonicalise(m.genome, task.sizes) for m in MECHANISMS.values() if _exists(m.genome, task)
    ]
    trials = []
    for number in range(count):
        genome = genomes[number % len(genomes)]
        key = resolved_digest(genome, task.sizes)
        trials.append(Trial(key, genome, training_seed(seed, "gpu", number)))
    return trials


def _exists(genome: Genome, task: Task) -> bool:
    try:
        build_attention(genome, task.width, task.heads)
    except Exception:  # heads that cannot be cut so, for one
        return False
    return True
