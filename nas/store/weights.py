"""Trained weights of mechanisms of a front: ``weights/<key>.safetensors`` in the folder of a run.

A file is written before its training is recorded, so that every recorded mechanism of the front has
weights. When a run ends, the files of mechanisms that are unlikely to be in the front are removed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from safetensors import SafetensorError

from nas.common.errors import RunError
from nas.evaluation.trial import Evaluation
from nas.store.files import STAGING, write_file

if TYPE_CHECKING:
    from torch import Tensor

    from nas.genome import Genome
    from nas.tasks import ModelTask

WEIGHTS: Final = "weights"
SUFFIX: Final = ".safetensors"


def weights_path(folder: Path, key: str) -> Path:
    """Return the path of a mechanism's weights. The file exists if the mechanism is in the front.

    Raises:
        RunError: the key is not valid, because the database is damaged.
    """
    if not re.fullmatch(r"[0-9A-Za-z_-]{1,64}", key):
        raise RunError(f"{folder}: {key!r} is no key of a candidate; the database is damaged.")
    return folder / WEIGHTS / f"{key}{SUFFIX}"


def read_weights(path: Path, genome: Genome, task: ModelTask) -> list[dict[str, Tensor]]:
    """Return the state dict of the attention of each layer of a task's trained model.

    Raises:
        RunError: the file is missing, damaged or does not fit into the memory; or its tensors are
            not those of the model: one is missing or surplus, has another shape, or a value that is
            not finite.
    """
    import torch
    from safetensors.torch import load_file

    from nas.training.candidate import attention_maker, by_layer

    try:
        tensors = load_file(path)
    except (OSError, MemoryError, RuntimeError, SafetensorError) as error:  # Runtime: no mmap
        raise RunError(
            f"{path}: no weights can be read ({str(error) or type(error).__name__}); a run saves "
            "the weights of mechanisms that are likely in its front."
        ) from None
    attention = attention_maker(task.resolve(genome), task)
    with torch.random.fork_rng(devices=[]):
        layers = [attention(layer) for layer in range(task.depth)]
    try:
        by_layer(layers).load_state_dict(tensors)
        if spoilt := [name for name, tensor in tensors.items() if not tensor.isfinite().all()]:
            raise RuntimeError(f"{spoilt[0]} contains NaN or infinity.")
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise RunError(f"{path}: its weights are not those of the mechanism: {reason}") from None
    return [layer.state_dict() for layer in layers]


def keep_weights(folder: Path, key: str, evaluation: Evaluation) -> None:
    """Write the weights of a training, if it succeeded and its result contains weights.

    Raises:
        RunError: the file cannot be written.
    """
    if evaluation.weights is not None and evaluation.is_ok:
        write_file(weights_path(folder, key), evaluation.weights)


def remove_weights(folder: Path, keys: Iterable[str]) -> None:
    """Remove the weights of some mechanisms and temporary files of killed processes.

    Other files in the folder of weights belong to the user and stay.
    """
    temporary = (folder / WEIGHTS).glob(f"{STAGING}*")
    for path in (*temporary, *(weights_path(folder, key) for key in keys)):
        with contextlib.suppress(OSError):
            path.unlink()
