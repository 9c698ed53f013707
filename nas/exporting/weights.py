"""The trained weights of a run's member: trained again from the recorded seed, then written.

A run keeps results, not weights. Training is deterministic, so the same job gives the same
weights; the accuracy is compared with the record before anything is written.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from nas.canonical import digest
from nas.errors import ExportError
from nas.evaluation.choices import Choices
from nas.evaluation.record import Job, training_seed
from nas.evaluation.together import TOGETHER, train_models_together
from nas.evaluation.trainer import train_model
from nas.search.setup import from_text
from nas.store import find_candidate, open_run
from nas.tasks import Task, load_images

if TYPE_CHECKING:
    from pathlib import Path

    from nas.evaluation.record import Evaluation
    from nas.sources import Source


def export_weights(source: Source, layer: int, path: Path) -> float:
    """Write the weights of one layer that holds the mechanism as safetensors.

    The keys are those of the exported class; the metadata hold genome, digest, run and layer.

    Returns:
        The accuracy reached, equal to the recorded one.

    Raises:
        ExportError: the member was not trained, the training does not give what was recorded,
            or the place cannot be written.
    """
    assert source.run is not None, "only a member of a run has trained weights"
    with open_run(source.run) as run:
        candidate = find_candidate(run, source.digest or "")
        recorded = None if candidate is None else run.evaluation(candidate.proposal.key or "", 0)
        task, seed, name = from_text(run.setup.task, Task), run.setup.seed, run.name
        repeats = run.setup.repeats
        choices = Choices.from_dict(run.setup.choices) if run.setup.choices else None
    if candidate is None or recorded is None or not recorded.is_ok:
        raise ExportError(f"{source.text}: was not trained, so it has no weights.")
    key = candidate.proposal.key or ""
    is_group = recorded.execution.endswith(TOGETHER)
    seeds = [training_seed(seed, key, repeat) for repeat in range(repeats if is_group else 1)]
    jobs = [Job(key, candidate.proposal.genome, own) for own in seeds]
    device = "cuda" if recorded.execution.startswith("cuda") else "cpu"
    data = load_images(task.data, task)
    with nullcontext(task) if choices is None else choices.applied(task) as chosen:
        if is_group:
            found, model = train_models_together(jobs, chosen, data, device=device)[0]
        else:
            found, model = train_model(jobs[0], chosen, data, device=device)
    _check(source, found, recorded)
    assert model is not None, "a training that ended well has a model"
    tensors = {
        k: v.detach().contiguous() for k, v in model.attentions()[layer].state_dict().items()
    }
    metadata = {
        "genome": source.genome.to_json(),
        "digest": digest(source.genome),
        "run": name,
        "layer": str(layer),
        "torch": str(torch.__version__),
    }
    try:
        save_file(tensors, path, metadata=metadata)
        path.chmod(0o644)  # as the module beside it, not for its owner alone
    except (OSError, SafetensorError) as error:
        raise ExportError(f"{path}: cannot be written ({error}).") from None
    return found.objectives["accuracy"]


def _check(source: Source, found: Evaluation, recorded: Evaluation) -> None:
    """Refuse weights that are not those of the recorded training."""
    if not found.is_ok:
        raise ExportError(f"{source.text}: training again failed ({found.reason}).")
    before, now = recorded.objectives["accuracy"], found.objectives["accuracy"]
    if before != now:
        raise ExportError(
            f"{source.text}: training again gave accuracy {now:.4f}, the record says {before:.4f}; "
            "another processor, precision or version of torch trained it. Resume or repeat the "
            "search on this machine to have weights that match its record."
        )
