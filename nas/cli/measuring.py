"""``nas cost --measure``: measure, and say on standard error how far it is."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from nas.report.units import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from nas.measurement import Done
    from nas.report.costs import Block, Costed


def measured(found: list[Costed], block: Block, rounds: int, device: str) -> Block:
    """The block with what its mechanisms took."""
    from nas.cli.console import output
    from nas.measurement import measure

    with progress(output(is_error=True), rounds) as listener:
        readings = measure(
            {one.source.text: one.source.genome for one in found},
            block.lengths,
            dim=block.dim,
            heads=block.heads,
            rounds=rounds,
            device=device,
            listener=listener,
        )
    return replace(block, device=device, rounds=rounds, readings=readings)


@contextmanager
def progress(console: Console, rounds: int) -> Iterator[Callable[[Done], None]]:
    """A listener: one line that changes on a terminal, else a line when a round is over."""
    start = time.monotonic()

    def told(done: Done) -> str:
        name, tokens, _ = done.key
        turn = f"round {done.round} of {rounds}" if done.round else "what fits into memory"
        where = f"{name} at {tokens:,} tokens, {done.number} of {done.total} measurements"
        return f"{turn}: {where}, {duration(time.monotonic() - start)}"

    if not console.is_terminal:

        def print_rounds(done: Done) -> None:
            if done.number % (done.total // (rounds + 1)) == 0:
                console.print(told(done), soft_wrap=True)

        yield print_rounds
        return
    with console.status("starting") as line:
        yield lambda done: line.update(told(done))
