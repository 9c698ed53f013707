"""Select the edited genomes that may be trained: legal under the policy, valid under the task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nas.evaluation.study import why_not
from nas.genome import Genome
from nas.genome.types import infer
from nas.space.validation import Policy, nearest_legal, validate
from nas.tasks import ModelTask

if TYPE_CHECKING:
    from nas.compiler import ResolvedGenome
    from nas.explaining.edits import Edit


@dataclass(frozen=True)
class Bounds:
    """The policy and the task that limit which mechanisms are compared."""

    policy: Policy
    task: ModelTask

    def key(self, genome: Genome) -> str:
        """The mechanism's digest at these sizes."""
        return self.task.resolve(genome).key

    def admitted(self, genome: Genome) -> ResolvedGenome | None:
        """The resolved form of a genome that may be trained, else None."""
        if infer(genome).problems or validate(genome, self.policy) or why_not(genome, self.task):
            return None
        resolved = self.task.resolve(genome)
        return None if validate(resolved.genome, self.policy) else resolved

    def distinct(
        self, edits: Iterable[Edit], known: Iterable[str], *, repairs: bool = False
    ) -> Iterator[tuple[str, Edit]]:
        """The edits that lead to distinct new mechanisms, with their keys; genomes in normal form.

        Args:
            known: keys of mechanisms that are left out.
            repairs: replace a genome that is not legal by the nearest legal one.
        """
        keys = set(known)
        for edit in edits:
            resolved, is_repaired = self.admitted(edit.genome), False
            if resolved is None and repairs:
                repaired = nearest_legal(edit.genome.pruned(), self.policy)
                resolved, is_repaired = None if repaired is None else self.admitted(repaired), True
            if resolved is not None and resolved.key not in keys:
                keys.add(resolved.key)
                genome = resolved.genome
                yield resolved.key, replace(edit, genome=genome, is_repaired=is_repaired)
