"""A path from standard attention to a mechanism by single legal edits.

A beam search runs backwards: it edits the mechanism towards standard attention and keeps the few
nearest genomes after each step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nas.explaining.edits import steps
from nas.genome import FLAGS, LABELS, Genome, Projections, Visibility
from nas.genome.mechanisms import mechanism
from nas.genome.primitives.base import STREAM_OF_PORT
from nas.genome.types import infer

if TYPE_CHECKING:
    from nas.explaining.bounds import Bounds
    from nas.explaining.edits import Edit

    Steps = list[tuple[str, Edit]]

STANDARD: Final = "mha"
BEAM: Final = 4  # genomes that are kept after each step
MOST_STEPS: Final = 40


def path(goal: Genome, bounds: Bounds) -> Steps | None:
    """The steps from standard attention to the goal, with keys; None if no path was found.

    The path of standard attention itself is empty.

    Args:
        goal: in normal form.
    """
    standard, first = bounds.key(mechanism(STANDARD).genome), bounds.key(goal)
    if first == standard:
        return []
    beam: list[tuple[str, Genome, Steps]] = [(first, goal, [])]
    visited = {first}
    for _ in range(MOST_STEPS):
        candidates: list[tuple[str, Genome, Steps]] = []
        for before, genome, later_steps in beam:
            for key, edit in bounds.distinct(steps(genome), visited):
                path_steps = [(before, edit.undone(genome)), *later_steps]
                if key == standard:
                    return path_steps
                visited.add(key)
                candidates.append((key, edit.genome, path_steps))
        candidates.sort(key=lambda step: distance(step[1]))
        beam = candidates[:BEAM]
    return None


def distance(genome: Genome) -> int:
    """Approximate number of edits from a genome in normal form to standard attention."""
    plain, actual, typing = Projections(), genome.projections, infer(genome)
    edits: int = sum(getattr(actual, name) != getattr(plain, name) for name in (*FLAGS, *LABELS))
    edits += (genome.placement != "all") + (genome.visibility != Visibility())
    usual = [node.op for node in mechanism(STANDARD).genome.nodes]
    for index, node in enumerate(genome.nodes):
        if node.op in usual:
            usual.remove(node.op)
        else:
            edits += 1
        edits += len(node.params)
        for ref, port in zip(node.inputs, typing.signatures[index].inputs, strict=True):
            edits += isinstance(ref, str) and STREAM_OF_PORT.get(port.name, ref) != ref
    return edits + len(usual)
