"""Trained weights of mechanisms of a front: ``weights/<key>.safetensors`` in the folder of a run.

A file is written before its training is recorded, so that every recorded mechanism of the front has
weights. When a run ends, the files of mechanisms that are unlikely to be in the front are removed.
"""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from safetensors import SafetensorError

from nas.common.errors import RunError
from nas.common.reading import open_regular
from nas.evaluation.trial import Evaluation
from nas.store.files import STAGING, run_argument, write_whole

if TYPE_CHECKING:
    from torch import Tensor

    from nas.genome import Genome
    from nas.tasks import ModelTask

WEIGHTS: Final = "weights"
SUFFIX: Final = ".safetensors"
MAX_BYTES: Final = 2**30
MAX_HEADER_BYTES: Final = 2**22  # JSON, 100 bytes for each tensor


def weights_path(folder: Path, key: str) -> Path:
    """Return the path of a mechanism's weights. The file exists if the mechanism is in the front.

    Raises:
        RunError: the key is not valid, because the database is damaged; or the folder of weights is
            a link, which may lead out of the run.
    """
    if not re.fullmatch(r"[0-9A-Za-z_-]{1,64}", key):
        raise RunError(f"{folder}: {key!r} is no key of a candidate; the database is damaged.")
    if (folder / WEIGHTS).is_symlink():
        raise RunError(
            f"{folder / WEIGHTS}: is a link, which can lead out of the run; expected the folder."
        )
    return folder / WEIGHTS / f"{key}{SUFFIX}"


def read_weights(path: Path, genome: Genome, task: ModelTask) -> list[dict[str, Tensor]]:
    """Return the state dict of the attention of each layer of a task's trained model.

    Raises:
        RunError: the file is missing, damaged, larger than ``MAX_BYTES``, or does not fit into the
            memory; or its tensors are not those of the model: one is missing or surplus, has
            another shape or type, or a value that is not finite.
    """
    from safetensors.torch import load_file

    try:
        with open_regular(path, MAX_BYTES, follow=False) as file:
            header = int.from_bytes(file.read(8), "little")
        if header > MAX_HEADER_BYTES:
            raise OSError(errno.EFBIG, f"its header has {header:,} bytes")
        tensors = load_file(path)
    except (OSError, MemoryError, RuntimeError, SafetensorError) as error:  # Runtime: no mmap
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise RunError(
            f"{path}: no weights can be read ({reason}); a run saves the weights of mechanisms "
            "that are likely in its front."
        ) from None
    layers = _initial_weights(genome, task)
    expected = {
        f"layers.{layer}.{name}": tensor
        for layer, state in enumerate(layers)
        for name, tensor in state.items()
    }
    for name in sorted(expected.keys() | tensors.keys()):
        if problem := _problem(tensors.get(name), expected.get(name)):
            raise RunError(f"{path}: its weights are not those of the mechanism: {name} {problem}.")
    return [
        {name: tensors[f"layers.{layer}.{name}"] for name in state}
        for layer, state in enumerate(layers)
    ]


def _initial_weights(genome: Genome, task: ModelTask) -> list[dict[str, Tensor]]:
    """Return the state dict of the attention of each layer of a task's untrained model."""
    import torch

    from nas.compiler import build_attention

    chosen = genome.placement.layers(task.depth)
    with torch.random.fork_rng(devices=[]):
        blocks = [
            build_attention(
                genome if layer in chosen else genome.rest(),
                task.width,
                task.heads,
                qkv_bias=task.qkv_bias,
            )
            for layer in range(task.depth)
        ]
    return [block.state_dict() for block in blocks]


def _problem(found: Tensor | None, expected: Tensor | None) -> str:
    """Return in which way a tensor of a file is not the expected one; "" if it is."""
    if found is None:
        return "is missing"
    if expected is None:
        return "is surplus"
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        kinds = [f"{[*tensor.shape]} of {tensor.dtype}" for tensor in (found, expected)]
        return f"is {kinds[0]}; expected {kinds[1]}"
    return "" if bool(found.isfinite().all()) else "contains NaN or infinity"


def keep_weights(folder: Path, key: str, evaluation: Evaluation) -> None:
    """Write the weights of a training, if it succeeded and its result contains weights.

    Raises:
        RunError: the file cannot be written.
    """
    if evaluation.weights is None or not evaluation.is_ok:
        return
    path = weights_path(folder, key)
    try:
        path.parent.mkdir(exist_ok=True)
        write_whole(path, evaluation.weights)
    except OSError as error:
        raise RunError(
            f"{path}: cannot be written ({error.strerror}). Check that you may write to the "
            "folder and that its disk is not full; "
            f"`nas resume {run_argument(folder)}` goes on."
        ) from error


def remove_weights(folder: Path, keys: Iterable[str]) -> None:
    """Remove the weights of some mechanisms and temporary files of killed processes.

    Other files in the folder of weights belong to the user and stay.
    """
    if (folder / WEIGHTS).is_symlink():
        return
    temporary = (folder / WEIGHTS).glob(f"{STAGING}*")
    for path in (*temporary, *(weights_path(folder, key) for key in keys)):
        with contextlib.suppress(OSError):
            path.unlink()
