"""Trained weights of mechanisms of a front: ``weights/<key>.safetensors`` in the folder of a run.

A file is written before its training is recorded, so every recorded member of the front has one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from safetensors import SafetensorError

from nas.common.errors import RunError
from nas.store.files import STAGING

if TYPE_CHECKING:
    from torch import Tensor

    from nas.genome import Genome
    from nas.tasks import ModelTask

WEIGHTS: Final = "weights"


def weights_path(folder: Path, key: str) -> Path:
    """Return the path of a mechanism's weights, which exist if the mechanism is in the front."""
    return folder / WEIGHTS / f"{key}.safetensors"


def read_weights(path: Path, genome: Genome, task: ModelTask) -> list[dict[str, Tensor]]:
    """Return the state dict of the attention of each layer of a task's trained model.

    RunError is raised if the file is missing or damaged, if its tensors are not those of the model,
    or if a value is not finite.
    """
    import torch
    from safetensors.torch import load_file

    from nas.training.candidate import attention_maker, by_layer

    try:
        tensors = load_file(path)
    except (OSError, RuntimeError, SafetensorError) as error:  # Runtime: no mmap
        raise RunError(
            f"{path}: no weights can be read ({error}); a run saves the weights of mechanisms that "
            "are likely in its front."
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


def remove_weights(folder: Path, keys: Iterable[str]) -> None:
    """Remove the weights of some mechanisms, and temporary files of killed processes."""
    temporary = (folder / WEIGHTS).glob(f"{STAGING}*")
    for path in (*temporary, *(weights_path(folder, key) for key in keys)):
        with contextlib.suppress(OSError):
            path.unlink()
