"""Train one candidate on a task and judge it on held-out images.

One thread on a CPU, no Python per image, no wait for a GPU inside an epoch. A job gives the same
curve bit for bit wherever the same processor runs it; what goes wrong with a candidate becomes a
failed evaluation, never an exception.
"""

from __future__ import annotations

import traceback
from functools import cache
from typing import TYPE_CHECKING, Final

import torch
from torch import nn

from nas.compiler import build_attention
from nas.costs import backbone_cost
from nas.evaluation.guard import MAX_ERROR_CHARACTERS, worker_name
from nas.evaluation.record import Evaluation
from nas.genome import layers_with_mechanism
from nas.measurement import is_out_of_memory
from nas.mechanisms import mechanism
from nas.tasks.backbone import Backbone
from nas.tasks.seeds import derive_seed, seeded
from nas.tasks.task import budget_text
from nas.training.allocator import keep_freed_memory
from nas.training.hardware import Meter, check_device, one_thread
from nas.training.latency import attention_latency_ms
from nas.training.session import Diverged, Session, TimeIsUp
from nas.training.stepping import graphs_on

if TYPE_CHECKING:
    from nas.evaluation.record import Job, Reason
    from nas.genome import Genome
    from nas.tasks import ImageData, Task

TRACEBACK_LINES: Final = 6


def train_candidate(
    job: Job,
    task: Task,
    data: ImageData,
    *,
    device: str = "cpu",
    time_limit: float | None = None,
) -> Evaluation:
    """Train one candidate and judge it.

    Args:
        time_limit: seconds, looked at between steps; None for no limit.

    Returns:
        ``ok`` with accuracy (fraction of the validation images), MACs, parameters and KV-cache
        bytes of all attention layers and their latency; or ``failed`` with reason and text.

    Raises:
        DeviceError: the device is not there, whoever the candidate is.
    """
    return train_model(job, task, data, device=device, time_limit=time_limit)[0]


def train_model(
    job: Job,
    task: Task,
    data: ImageData,
    *,
    device: str = "cpu",
    time_limit: float | None = None,
) -> tuple[Evaluation, Backbone | None]:
    """As ``train_candidate``, with the trained model, or None where training failed."""
    place = check_device(device)
    keep_freed_memory()
    load_optimizers()
    meter = Meter(place)
    session = Session(task, place, time_limit, meter, graphs=graphs_on(place))
    objectives: dict[str, float] = {}
    model, reason, text = None, None, None
    try:
        with one_thread(), seeded(derive_seed(job.seed, "noise")):
            # Before the training: what cannot be counted is not worth its time.
            costs = costs_of(job.genome, task)
            built = build_backbone(job.genome, task, data, job.seed)
            accuracy = session.fit(built, data, derive_seed(job.seed, "order"))
            objectives = {"accuracy": accuracy} | costs | latency_of(built, task)
            model = built
    except Exception as error:  # a candidate's fault is a result
        reason, text = explain(error)
    evaluation = _record(job, session, objectives, reason, text, len(data.train))
    return evaluation, model


@cache
def load_optimizers() -> None:
    """The first optimiser makes torch import its compiler: seconds that no candidate shall pay."""
    torch.optim.AdamW([torch.zeros(1)])


def build_backbone(genome: Genome, task: Task, data: ImageData, seed: int) -> Backbone:
    """A task's backbone, untrained, with the mechanism where its placement says.

    Raises:
        GenomeError: the mechanism does not exist at the task's sizes.
    """
    own = layers_with_mechanism(genome.placement, task.depth)
    standard = mechanism("mha").genome

    def attention(layer: int) -> nn.Module:
        chosen = genome if layer in own else standard
        return build_attention(chosen, task.width, task.heads, qkv_bias=task.qkv_bias)

    return Backbone(
        task,
        channels=data.channels,
        num_classes=data.num_classes,
        attention=attention,
        seed=seed,
    )


def costs_of(genome: Genome, task: Task) -> dict[str, float]:
    """What all attention layers of the backbone cost together."""
    dim, heads, depth, tokens = task.sizes
    cost = backbone_cost(
        genome, dim=dim, heads=heads, depth=depth, tokens=tokens, qkv_bias=task.qkv_bias
    )
    names = ("macs", "params", "kv_cache_bytes_per_token")
    return {name: float(cost[name]) for name in names}


def latency_of(model: Backbone, task: Task) -> dict[str, float]:
    """How long they take for one image, by the objective's name."""
    dim, _, _, tokens = task.sizes
    return {"latency_ms": attention_latency_ms(model, tokens=tokens, dim=dim)}


def explain(error: Exception) -> tuple[Reason, str]:
    """The reason of a failure and its text."""
    if isinstance(error, Diverged):
        return "diverged", f"{error}."
    if isinstance(error, TimeIsUp):
        return "time_limit", f"{error}."
    if is_out_of_memory(error):
        return "out_of_memory", f"{type(error).__name__}: {error}"
    lines = "".join(traceback.format_exception(error)).strip().splitlines()
    return "error", "\n".join(lines[-TRACEBACK_LINES:])


def _record(
    job: Job,
    session: Session,
    objectives: dict[str, float],
    reason: Reason | None,
    text: str | None,
    images: int,
) -> Evaluation:
    used = session.meter.read()
    budget = f"{budget_text(session.task.epochs, images)}, {session.precision}"
    return Evaluation(
        status="failed" if reason else "ok",
        reason=reason,
        objectives={} if reason else objectives,
        curve=tuple(session.curve),
        seed=job.seed,
        budget=budget,
        wall_seconds=used.wall_seconds,
        core_seconds=used.core_seconds,
        peak_memory_bytes=used.peak_memory_bytes,
        worker=worker_name(),
        error=text[-MAX_ERROR_CHARACTERS:] if text else None,
        execution=session.execution,
    )
