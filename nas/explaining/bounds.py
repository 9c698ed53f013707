"""Which edited genomes may be trained: legal under the policy, possible under the task."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nas.evaluation.study import why_not
from nas.genome.canonical import canonicalise, resolved_digest
from nas.genome.types import infer
from nas.space.validation import nearest_legal, validate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from nas.explaining.edits import Edit
    from nas.genome import Genome
    from nas.space.validation import Policy
    from nas.tasks import ModelTask


@dataclass(frozen=True)
class Bounds:
    """Where mechanisms are compared: under a policy and at a task's sizes."""

    policy: Policy
    task: ModelTask

    def key(self, genome: Genome) -> str:
        """The mechanism's name at these sizes."""
        return resolved_digest(genome, self.task.sizes, is_causal=self.task.is_causal)

    def normal(self, genome: Genome) -> Genome:
        """Its normal form at these sizes."""
        return canonicalise(genome, self.task.sizes, is_causal=self.task.is_causal)

    def admitted(self, genome: Genome) -> Genome | None:
        """The normal form of what may be trained; None of anything else."""
        if infer(genome).problems or validate(genome, self.policy) or why_not(genome, self.task):
            return None
        own = self.normal(genome)
        return None if validate(own, self.policy) else own

    def distinct(
        self, edits: Iterable[Edit], known: Iterable[str], *, repairs: bool = False
    ) -> Iterator[tuple[str, Edit]]:
        """The edits that lead to another mechanism each, by key, their genomes in normal form.

        Args:
            known: mechanisms that need not come again.
            repairs: whether the nearest legal genome is taken where an edit's own is not legal.
        """
        seen = set(known)
        for edit in edits:
            genome, is_repaired = self.admitted(edit.genome), False
            if genome is None and repairs:
                repaired = nearest_legal(edit.genome.pruned(), self.policy)
                genome, is_repaired = repaired and self.admitted(repaired), True
            if genome is not None and (key := self.key(genome)) not in seen:
                seen.add(key)
                yield key, replace(edit, genome=genome, is_repaired=is_repaired)
