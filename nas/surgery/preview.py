"""Preview: what a swap would change, and by how much on a batch, tried on a copy of the model."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from nas.common.errors import NasError
from nas.genome import Genome
from nas.surgery.core import AttentionCore
from nas.surgery.swap import Where, swap_attention


def preview_swap(
    model: nn.Module,
    mechanism: Genome | str,
    batch: Any = None,
    *,
    where: Where = None,
    init: str | None = None,
) -> dict[str, Any]:
    """What ``swap_attention(model, mechanism, preserve=False)`` would do; the model stays as it is.

    Args:
        model, mechanism, where, init: as for ``swap_attention``.
        batch: what the model is called with: a tensor, a tuple of arguments or a mapping of named
            ones. With ``labels`` a model of transformers gives its loss, too.

    Returns:
        ``changes``: for each module's name a list of sentences. ``params``: numbers of parameters
        [before, after]. With a batch, in eval mode: ``outputs``, the relative change
        |after - before| / |before| (L2, of the first output); and ``loss`` [before, after], where
        the model gives one. New weights are those that a swap would draw now.

    Raises:
        GenomeError, ViolationError, NasError: as ``swap_attention``.
    """
    devices = sorted({p.device.index or 0 for p in model.parameters() if p.is_cuda})
    with torch.random.fork_rng(devices=devices):
        swapped = deepcopy(model)
        names = swap_attention(swapped, mechanism, where=where, init=init, preserve=False)
    found: dict[str, Any] = {"changes": {name: _changes(swapped, name) for name in names}}
    found["params"] = [sum(p.numel() for p in one.parameters()) for one in (model, swapped)]
    if batch is None:
        return found
    (before, loss), (after, new_loss) = (_called(one, batch) for one in (model, swapped))
    found["outputs"] = float((after - before).norm() / before.norm())
    if loss is not None:
        found["loss"] = [loss, new_loss]
    return found


def _changes(model: nn.Module, name: str) -> list[str]:
    core = getattr(model.get_submodule(name), "core", None)
    assert isinstance(core, AttentionCore)
    return list(core.changes)


def _called(model: nn.Module, batch: Any) -> tuple[Tensor, float | None]:
    """The first output in float64, and the loss, in eval mode."""
    modes = {part: part.training for part in model.modules()}
    try:
        with torch.no_grad():
            model.eval()
            if isinstance(batch, Mapping):
                result = model(**batch)
            else:
                result = model(*batch) if isinstance(batch, tuple) else model(batch)
    finally:
        for part, mode in modes.items():
            part.training = mode
    loss = getattr(result, "loss", None)
    values = result.values() if isinstance(result, Mapping) else result
    values = [values] if isinstance(values, Tensor) else values
    first = next((v for v in values if isinstance(v, Tensor) and v.dim() and v is not loss), None)
    if first is None:
        raise NasError(f"{type(model).__name__} gives no tensor for this batch; expected outputs.")
    return first.double(), None if loss is None else float(loss)
