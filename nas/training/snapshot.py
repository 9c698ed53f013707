"""A training as it stands, to be brought back: what may be tried without being counted.

Also says what a try replaced. A CUDA graph sees tensors that are changed in place and nothing
else, so a module that puts a new tensor in place of an old one, or counts in Python, would go on
with what it held when the graph was captured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor, nn

PLAIN: Final = (bool, int, float, str, type(None))
MAX_REASON: Final = 200
"""Characters of an error that are kept."""


class Snapshot:
    """Weights, buffers, attributes of modules, further tensors and random generators.

    What lies deeper in an attribute of a module than it itself (an entry of a list) is not kept.
    """

    def __init__(self, model: nn.Module, state: Iterable[Tensor], device: torch.device) -> None:
        self._device = device
        self._weights = list(model.parameters())
        kept = [*self._weights, *model.buffers(), *state]
        self._tensors = [(tensor, tensor.detach().clone()) for tensor in kept]
        self._attributes = [
            (name, module, dict(vars(module)), dict(module._buffers))
            for name, module in model.named_modules()
        ]
        self._random = torch.get_rng_state()
        self._random_there = _state_on(device)

    def replaced(self) -> list[str]:
        """The attributes of modules that hold something else than they did, sorted by module."""
        found = []
        for name, module, attributes, buffers in self._attributes:
            before, now = attributes | buffers, vars(module) | module._buffers
            changed = {key for key in before.keys() | now.keys() if not _same(key, before, now)}
            found += [f"{name}.{key}".lstrip(".") for key in sorted(changed)]
        return found

    @torch.no_grad()
    def restore(self) -> None:
        """Bring everything back; gradients are forgotten."""
        for _, module, attributes, buffers in self._attributes:
            vars(module).clear()
            vars(module).update(attributes)
            module._buffers.clear()
            module._buffers.update(buffers)
        for tensor, kept in self._tensors:
            tensor.copy_(kept)
        for weight in self._weights:
            weight.grad = None
        torch.set_rng_state(self._random)
        if self._random_there is not None:
            torch.cuda.set_rng_state(self._random_there, self._device)


def reason_of(error: BaseException) -> str:
    """Why a try failed, in one line: the first error of a chain, which others came after."""
    while error.__context__ is not None:
        error = error.__context__
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:MAX_REASON]


def _state_on(device: torch.device) -> Tensor | None:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def _same(key: str, before: dict[str, object], now: dict[str, object]) -> bool:
    if key not in before or key not in now:
        return False
    old, new = before[key], now[key]
    return old is new or (isinstance(new, PLAIN) and type(old) is type(new) and old == new)
