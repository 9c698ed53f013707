"""torch.compile for the attention blocks of a training: where it pays, and what if it fails.

Compiled is the generated forward of each block (nas.compiler writes one a genome, so genomes do
not share torch's limit of recompilations), with the shapes of whole batches. It takes seconds a
genome and rounds otherwise than eager operations; so a task asks for it, and evaluations record
it. Under ``auto`` nothing is timed, since a clock must not decide how a training rounds: it
compiles where

    steps × pairs of a step × (seconds saved a pair) > (seconds to compile)

Compiled kernels are shared between workers and runs, in a folder of the cache.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch

from nas.tasks.folder import cache_folder
from nas.training.snapshot import Snapshot, reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from torch import Tensor, nn

    from nas.tasks import Task
    from nas.training.stepping import Work

COMPILE_SECONDS: Final = 20.0
"""Of one genome, to train and to judge, where nothing is in the cache yet."""
SAVED_SECONDS_A_PAIR: Final = 1.3e-11
"""On a GPU, for a query and a key of one head: ten planes of scores that are no longer written and
read in 16 bits at 3 TB/s. An estimate: no GPU was at hand. `python -m tests.benchmarks gpu` shows
eager and compiled blocks beside each other."""
# The matcher rewrites hand-written softmax attention into torch's, which on a processor fails in
# torch 2.15 (sym_3 is not defined); one thread, since a worker has one core.
OPTIONS: Final[dict[str, Any]] = {"pattern_matcher": False, "compile_threads": 1}


def pays(task: Task, steps: int, device: torch.device) -> bool:
    """Whether to compile for a training of so many steps."""
    if task.compile != "auto":
        return task.compile == "always"
    # On a processor compiled attention was slower than eager (77 against 57 ms a step).
    if device.type == "cpu":
        return False
    _, heads, depth, tokens = task.sizes
    pairs = task.batch_size * heads * depth * tokens**2
    return steps * pairs * SAVED_SECONDS_A_PAIR > COMPILE_SECONDS


@contextmanager
def compiled(blocks: Sequence[nn.Module], tries: Sequence[tuple[Work, Tensor]]) -> Iterator[str]:
    """Within, these blocks are compiled; afterwards they are as before.

    Args:
        tries: work that uses them, each with a whole batch. It is rehearsed once, which compiles,
            and the model is brought back. Batches of other sizes stay eager.

    Yields:
        What to record: ``compiled attention``, or that it failed and why; then all is eager.
    """
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "inductor"))
    sizes = {len(chosen) for _, chosen in tries}
    try:
        for block in blocks:
            # An attribute of an object hides the method of its class, and can be taken away.
            block.forward = _compiled(block.forward, sizes)
        told = _tried(tries)
        if told is not None:
            _undo(blocks)
        yield told or "compiled attention"
    finally:
        _undo(blocks)


def _compiled(forward: Callable[..., Tensor], sizes: Collection[int]) -> Callable[..., Tensor]:
    """A block's forward, compiled for batches of these sizes."""
    fast: Callable[..., Tensor] = torch.compile(forward, dynamic=False, options=OPTIONS)

    def call(x: Tensor) -> Tensor:
        return (fast if len(x) in sizes else forward)(x)

    return call


def _tried(tries: Sequence[tuple[Work, Tensor]]) -> str | None:
    """Rehearse without consequences; why that failed, if it did."""
    for work, chosen in tries:
        before = Snapshot(work.model, (), work.device)
        try:
            work.model.train(work.is_training)
            work.rehearse(chosen)
        except Exception as error:  # eagerly it runs, or shows a fault of its own
            return f"not compiled ({reason_of(error)})"
        finally:
            before.restore()
    return None


def _undo(blocks: Sequence[nn.Module]) -> None:
    for block in blocks:
        vars(block).pop("forward", None)
