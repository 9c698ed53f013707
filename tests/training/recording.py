"""A stand-in for CUDA graphs on a processor, with the same contract.

``Recording`` captures every operation of some work with its arguments, and a replay does them
again: on the same tensors, with the same numbers, without the work's Python. What waits for a
result, or brings a number from the host, is refused during the capture, as CUDA refuses it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nas.common.captures import WARM_UPS

aten = torch.ops.aten
WAITS_FOR_RESULT = {
    aten._local_scalar_dense.default,
    aten._linalg_check_errors.default,
    aten.nonzero.default,
    aten.equal.default,
}
FROM_HOST = {aten.lift_fresh.default, aten.lift_fresh_copy.default}


class Recording:
    """``nas.common.captures.CudaGraphs``, as above."""

    def __init__(self) -> None:
        self.warm_ups = self.replays = 0

    def warm_up(self, work: Callable[[], None]) -> None:
        for _ in range(WARM_UPS):
            self.warm_ups += 1
            work()

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Record work; like a CUDA capture, leave all tensors as they are."""
        recorder = _Recorder()
        try:
            with recorder:
                work()
        finally:
            recorder.undo()

        def replay() -> None:
            self.replays += 1
            recorder.replay()

        return replay


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []
        self.written: list[tuple[Tensor, Tensor]] = []  # with the values before

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in WAITS_FOR_RESULT | FROM_HOST:
            raise RuntimeError(f"{func} is not permitted when a stream is capturing")
        kwargs = kwargs or {}
        for value, argument in zip(args, func._schema.arguments, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                self.written += [(t, t.detach().clone()) for t in tree_leaves(value)]
        result = func(*args, **kwargs)
        self.calls.append((func, args, kwargs, result))
        return result

    @torch.no_grad()
    def undo(self) -> None:
        """Restore what was written in place."""
        for tensor, value in reversed(self.written):
            tensor.detach().copy_(value)

    @torch.no_grad()
    def replay(self) -> None:
        """Run every operation again and copy its results to where they were at the capture."""
        for func, args, kwargs, result in self.calls:
            again = func(*args, **kwargs)
            given = {_place(t) for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
            for old, new in zip(tree_leaves(result), tree_leaves(again), strict=True):
                # A view, or what was changed in place, is there already.
                if isinstance(old, Tensor) and _place(old) not in given:
                    old.detach().copy_(new)


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
