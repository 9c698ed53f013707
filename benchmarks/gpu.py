"""Measure everything that this project wants to know about a GPU, in about eight minutes.

The parts are listed in ``PARTS``, the cheapest and most important first. Each part runs in a
process of its own, so that a failure in one part leaves the others; a part that takes too long is
ended. The rows are also written as JSON into the file ``--out``, after each part. The option
``--part NAME`` runs one part. docs/operations.md says what each part decides.

Times are elapsed times, median over rounds, because processor time does not measure a GPU.
``--genome SOURCE`` adds a genome to the part ``attention``, for example an exported champion.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks import gpu_blocks
from benchmarks.gpu_blocks import Work, elapsed
from benchmarks.interleaving import median, median_ratio
from benchmarks.rows import Row, print_rows, to_json
from nas.common.errors import DeviceError, NasError
from nas.compiler import build_attention
from nas.evaluation.execution import Execution, mps_runs
from nas.evaluation.ray_backend import RayEvaluator
from nas.evaluation.trainer import build_model, train_candidate
from nas.evaluation.trial import Evaluator, Trial, run_trials, training_seed
from nas.genome.mechanisms import MECHANISMS, mechanism
from nas.store.sources import load_genome
from nas.tasks import Data, ModelTask, load_task
from nas.training.hardware import resolve_precision
from nas.training.optimizers import ScheduledOptimizer
from nas.training.steps import Steps, TrainStep, graphs_on

GENOMES: Final = ("mha", "qana")
STEPS: Final = 50  # per round
EAGER, GRAPH = "eager", "cuda graph"
WIDTHS: Final = (64, 256)
WORKERS: Final = (1, 2, 4, 8, 16)
CANDIDATES: Final = 24  # trainings per number of workers, or six for each worker if these are more
MINUTES: Final = 8.0  # no part begins after this time
PART_SECONDS: Final = 240.0  # a part is ended after this time
MPS: Final = "nvidia-cuda-mps-control"


def gpu(options: argparse.Namespace) -> Iterator[Row]:
    """Run all parts, or those named by ``--part``; yield what each took, or its error."""
    if not torch.cuda.is_available():
        print("skipped, because PyTorch finds no CUDA device.")
        return
    settings = {"data": options.data, "rounds": options.rounds, "genome": options.genome}
    yield from run_parts(options.part or list(PARTS), settings, options.out)


def run_parts(
    names: Sequence[str], settings: Mapping[str, Any], out: Path, minutes: float = MINUTES
) -> Iterator[Row]:
    """Run parts in processes of their own, and write their rows or errors after each part.

    Args:
        settings: values of the options ``data``, ``rounds`` and ``genome``.
        out: the JSON file to write.
        minutes: time after which no part begins.
    """
    start = time.monotonic()
    parts: dict[str, Any] = {}
    for name in names:
        begin = time.monotonic()
        if begin - start > 60 * minutes:
            parts[name] = {"error": f"not begun within {minutes:g} minutes"}
        else:
            parts[name] = _run(name, settings)
        seconds = round(time.monotonic() - begin, 1)
        date = datetime.now(UTC).isoformat(timespec="seconds")
        text = json.dumps({"date": date, "parts": parts}, indent=1)
        out.write_text(text + "\n", encoding="utf-8")
        yield {"part": name, "seconds": seconds, "error": parts[name].get("error", "")}


def _run(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Run a part in a new process; return its rows, or the error that ended it."""
    with tempfile.TemporaryDirectory() as folder:
        result, log = Path(folder, "result.json"), Path(folder, "log")
        command = [sys.executable, "-m", "benchmarks.gpu", name, json.dumps(settings), str(result)]
        with log.open("w", encoding="utf-8") as errors:
            process = subprocess.Popen(command, stderr=errors, start_new_session=True)
            try:
                code: object = process.wait(PART_SECONDS)
            except subprocess.TimeoutExpired:
                code = f"not finished after {PART_SECONDS:g} s"
            finally:
                with suppress(ProcessLookupError):  # it and its workers
                    os.killpg(process.pid, signal.SIGKILL)
        if result.exists():
            found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
            return found
        lines = log.read_text(encoding="utf-8").strip().splitlines()
        print("\n".join(lines[-12:]))
        return {"error": f"{lines[-1] if lines else 'no message'} ({code})"}


def main() -> None:
    """Measure one part, and write its rows: the process that ``run_parts`` starts."""
    name, settings, result = sys.argv[1:]
    torch.set_num_threads(1)
    sys.stdout.reconfigure(line_buffering=True)
    torch.backends.cuda.enable_cudnn_sdp(False)  # as in trainings
    measure = PARTS[name]
    rows = print_rows(measure(argparse.Namespace(**json.loads(settings)), torch.device("cuda")))
    found = {"machine": _machine(), "rows": to_json(rows)}
    Path(result).write_text(json.dumps(found), encoding="utf-8")


def _machine() -> dict[str, Any]:
    """Return facts about the GPU and its machine."""
    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "gibibytes": round(properties.total_memory / 2**30, 1),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "cores": len(os.sched_getaffinity(0)),
    }


def _vit(options: argparse.Namespace) -> tuple[ModelTask, Data]:
    task = load_task("vit-cifar10", data=options.data).main
    return task, task.load()


def steps(
    task: ModelTask, data: Data, device: torch.device, rounds: int, count: int = STEPS
) -> Iterator[Row]:
    """Yield milliseconds of a training step, eagerly and as a CUDA graph, and their ratio."""
    precision = resolve_precision(task.precision, device, task.width)
    for name in GENOMES:
        works = {
            form: _training(task, data, name, precision, form, device, count)
            for form in (EAGER, GRAPH)
        }
        yield {"mechanism": name, **_per_step(works, rounds, device, count)}


def precisions(
    task: ModelTask, data: Data, device: torch.device, rounds: int, count: int = STEPS
) -> Iterator[Row]:
    """Yield milliseconds of a training step in float32 and bfloat16, at several widths."""
    for width in WIDTHS:
        sized = task.model_copy(update={"width": width, "heads": 4})
        for name in GENOMES:
            works = {
                precision: _training(sized, data, name, precision, GRAPH, device, count)
                for precision in ("float32", "bfloat16")
            }
            times = _per_step(works, rounds, device, count)
            yield {"mechanism": name, "width": width, **times}


def _per_step(works: Mapping[str, Work], rounds: int, device: torch.device, count: int) -> Row:
    """Return the time of a step of both works, and the ratio of the first to the second."""
    samples = elapsed(works, rounds, device)
    times = {
        f"{form}, ms": median([1e3 * s / count for s in taken]) for form, taken in samples.items()
    }
    first, second = samples
    return times | {f"{first} / {second}": median_ratio(samples[first], samples[second])}


def _training(
    task: ModelTask,
    data: Data,
    name: str,
    precision: str,
    form: str,
    device: torch.device,
    count: int,
) -> Work:
    """Return a function that runs ``count`` training steps; print the kind of execution."""
    model = build_model(task.resolve(mechanism(name).genome), task, data, 0).to(device)
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    train = task.examples(data, "train", device, dtype)
    # A constant learning rate, because the number of steps is unknown.
    constant = task.model_copy(update={"schedule": "constant"})
    optimizer = ScheduledOptimizer(model, constant, 1)
    step = TrainStep(model, task, train, precision, device, optimizer)
    size = min(task.batch_size, len(train))
    indices = torch.arange(size, device=device)
    steps = Steps(step, size, None if form == EAGER else graphs_on(device))
    model.train()
    steps(indices)
    print(f"  {name}, width {task.width}, {precision}, {form}: {steps.execution}")

    def work() -> None:
        for _ in range(count):
            steps(indices)

    return work


def trainings(task: ModelTask, data: Data, device: torch.device) -> Iterator[Row]:
    """Yield the durations of whole trainings, and the GPU memory that each leaves reserved."""
    for name in ("mha", "qana", "additive", "mha"):
        trial = Trial("", task.resolve(mechanism(name).genome).genome, 1)
        evaluation = train_candidate(trial, task, data, device=str(device))
        if not evaluation.is_ok:
            raise RuntimeError(f"{name}: {evaluation.error}")
        reserved = torch.cuda.memory_reserved(device) if device.type == "cuda" else 0
        yield {
            "mechanism": name,
            "s": evaluation.wall_seconds,
            "processor, s": evaluation.core_seconds,
            "peak, MiB": evaluation.peak_memory_bytes / 2**20,
            "reserved after, MiB": reserved / 2**20,
            "execution": f"{evaluation.execution}, {evaluation.budget}",
        }


def candidates(
    task: ModelTask,
    data: Data,
    evaluator: Callable[[ModelTask, Data, int], Evaluator],
    numbers: Sequence[int] = WORKERS,
    count: int = CANDIDATES,
) -> Iterator[Row]:
    """Yield candidates per hour by number of workers, over the named mechanisms.

    Numbers of workers for which the machine has too few cores are left out.
    """
    for workers in numbers:
        try:
            pool = evaluator(task, data, workers)
        except DeviceError as error:
            print(f"  {workers} workers: left out, {error}")
            continue
        try:
            # Each worker's first training loads libraries and kernels.
            list(run_trials(pool, _trials(task, workers, seed=1)))
            start = time.perf_counter()
            trials = _trials(task, max(count, 6 * workers), seed=0)
            evaluations = [evaluation for _, evaluation in run_trials(pool, trials)]
            seconds = time.perf_counter() - start
        finally:
            pool.close()
        failed = sum(not evaluation.is_ok for evaluation in evaluations)
        execution = ", ".join(sorted({evaluation.execution for evaluation in evaluations}))
        yield {
            "workers": workers,
            "candidates/h": 3600 * len(evaluations) / seconds,
            "failed": failed,
            "execution": execution or "unknown",
        }


def _shared(task: ModelTask, data: Data, workers: int) -> Evaluator:
    """Return an evaluator whose workers share one GPU."""
    shared = Execution(workers=workers, gpus_per_worker=1 / workers)
    return RayEvaluator(task, data, shared)


def _trials(task: ModelTask, count: int, seed: int) -> list[Trial]:
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


def _under_mps(options: argparse.Namespace) -> Iterator[Row]:
    """Yield candidates per hour of four workers and more under MPS, which is started if needed."""
    with mps():
        yield from candidates(*_vit(options), _shared, [n for n in WORKERS if n >= 4])


@contextmanager
def mps() -> Iterator[None]:
    """Run NVIDIA's MPS inside a block, unless it runs already; it serves this process's children.

    Raises:
        DeviceError: the program that controls MPS is not installed.
    """
    if mps_runs():
        yield
        return
    if shutil.which(MPS) is None:
        raise DeviceError(f"{MPS} is not installed")
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        subprocess.run([MPS, "-d"], check=True)
        try:
            yield
        finally:
            subprocess.run([MPS], input=b"quit\n", check=False)


def _tests(_: argparse.Namespace, __: torch.device) -> Iterator[Row]:
    """Run the tests that need a GPU; yield how many passed."""
    folders = ["tests/training", "tests/evaluation"]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", *folders]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    print(ended.stdout[-3000:])
    if ended.returncode:
        raise RuntimeError(ended.stdout.strip().splitlines()[-1])
    passed = re.search(r"(\d+) passed", ended.stdout)
    yield {"tests passed": int(passed[1]) if passed else 0}


def _attention(options: argparse.Namespace, device: torch.device) -> Iterator[Row]:
    genomes = {name: load_genome(name) for name in (*GENOMES, *options.genome)}
    return gpu_blocks.attention(genomes, device, options.rounds)


def _calibration(options: argparse.Namespace, device: torch.device) -> Iterator[Row]:
    task, _ = _vit(options)
    return gpu_blocks.calibration(task.sizes, task.batch_size, device)


PARTS: Final[dict[str, Callable[[argparse.Namespace, torch.device], Iterator[Row]]]] = {
    "numerics": lambda _, device: gpu_blocks.numerics(device),
    "steps": lambda o, device: steps(*_vit(o), device, o.rounds),
    "trainings": lambda o, device: trainings(*_vit(o), device),
    "precision": lambda o, device: precisions(*_vit(o), device, o.rounds),
    "kernels": lambda o, device: gpu_blocks.kernels(device, o.rounds),
    "calibration": _calibration,
    "workers": lambda o, _: candidates(*_vit(o), _shared),
    "workers under MPS": lambda o, _: _under_mps(o),
    "swap": lambda o, device: gpu_blocks.swap(device, o.rounds),
    "tests": _tests,
    "attention": _attention,
}
"""The parts by name, in the order in which they run."""


if __name__ == "__main__":
    main()
