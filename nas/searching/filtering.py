"""Decide which genomes are trained: those that are permitted and that the run has not trained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from nas.common.errors import GenomeError, NasError
from nas.compiler import formula_of
from nas.costs import CostContext, costs_of, default_costs
from nas.genome import Genome
from nas.genome.canonical import digest
from nas.searching.algorithm import Attempt
from nas.space.rules import Policy, validate
from nas.store import Proposal
from nas.store.records import Verdict

MOST_CACHED: Final = 10_000  # genomes whose CandidateInfo is cached, about 5 kB each
ILLEGAL: Final = "internal error, the policy forbids it: "


@dataclass(frozen=True, slots=True)
class CandidateInfo:
    """A genome with its properties at the task's sizes, and whether it may be trained.

    ``genome`` is in normal form, or the original genome if it cannot be built at these sizes.
    ``note`` is the reason of a rejection, in which key, formula and costs are empty. ``is_new``: it
    is legal and the run has not trained it. See ``Proposal`` for the other fields.
    """

    genome: Genome
    digest: str
    key: str
    formula: str
    costs: Mapping[str, float]
    note: str
    is_new: bool = False


class CandidateFilter:
    """Decides which genomes are trained, and stores the keys of all mechanisms of the run.

    A genome is trained if it can be built at the task's sizes, its normal form satisfies the policy
    (the validator's path rules), and the run has not trained the same mechanism.

    Normal forms and costs are those at the sizes of ``context``, that is, of the run's task. If
    the run has a target task, costs are those at the sizes of ``target``, and a genome that cannot
    be built there is rejected. ``costs`` are computed in addition to the default costs.
    """

    def __init__(
        self,
        policy: Policy,
        context: CostContext,
        costs: Iterable[str],
        target: CostContext | None = None,
    ) -> None:
        self._policy, self._context, self._target = policy, context, target
        self._names = tuple(dict.fromkeys([*default_costs(), *costs]))
        self._known: set[str] = set()
        self._inspected = lru_cache(maxsize=MOST_CACHED)(self._inspect)

    def add_known(self, key: str) -> None:
        """Note that the run trains the mechanism with this key; it is no longer new."""
        self._known.add(key)

    def inspect(self, genome: Genome) -> CandidateInfo:
        """Return the normal form of a genome, its costs, and whether it may be trained."""
        info = self._inspected(genome)
        return replace(info, is_new=not info.note and info.key not in self._known)

    def propose(self, attempt: Attempt, number: int, index: int) -> Proposal:
        """Return an attempt as a record that says whether the genome is trained.

        If it is trained, its key is added. ``index`` counts the attempts for the proposal from 0.
        """
        info = self.inspect(attempt.genome)
        verdict: Verdict = "rejected" if info.note else "new" if info.is_new else "replayed"
        if info.is_new:
            self.add_known(info.key)
        return Proposal(
            number=number,
            attempt=index,
            digest=info.digest,
            key=info.key or None,
            genome=info.genome,
            formula=info.formula,
            operator=attempt.operator,
            name=attempt.name,
            parents=attempt.parents,
            verdict=verdict,
            note=info.note,
            costs=info.costs if info.is_new else {},
        )

    def _inspect(self, genome: Genome) -> CandidateInfo:
        try:
            resolved = self._context.resolve(genome)
            genome = resolved.genome
            if violations := validate(genome, self._policy):
                raise GenomeError(f"{ILLEGAL}{violations[0].message}")
            context = self._target or self._context
            at_sizes = resolved if self._target is None else context.resolve(genome)
            costs = costs_of(at_sizes, context, self._names)
            return CandidateInfo(
                genome, resolved.digest, resolved.key, formula_of(resolved.plan), costs, note=""
            )
        except NasError as error:
            return CandidateInfo(genome, digest(genome), "", "", {}, str(error))
