"""How a run stands as far as its algorithm was told: front, hypervolume, best accuracy, counts.

Kept in memory beside the store: on resuming, the store already holds later evaluations, while each
generation must be answered, and compared with its record, as it stood then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nas.pareto import non_dominated
from nas.store import Counts, as_costs, scaled_hypervolume, summarise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nas.evaluation.record import Evaluation
    from nas.search.algorithm import Costs, Result
    from nas.search.novelty import Proposed
    from nas.store import RunSetup

ACCURACY = "accuracy"


@dataclass(frozen=True, slots=True)
class _Member:
    digest: str
    costs: Costs
    objectives: Mapping[str, float]
    order: int


class Standing:
    """The candidates told so far, reduced to what a display and a generation's record need."""

    def __init__(self, setup: RunSetup) -> None:
        self._setup = setup
        self._members: list[_Member] = []
        self._num_told = 0
        self.best_accuracy: float | None = None
        self.counts = Counts()

    def take(
        self, proposals: Sequence[Proposed], evaluations: Mapping[str, Sequence[Evaluation]]
    ) -> tuple[list[Result], Counts]:
        """Take a generation in; give the costs of its new candidates in order, and its counts.

        Args:
            proposals: all of the generation.
            evaluations: all repeats by key. One that failed makes the candidate a failed one.
        """
        results = [self._take_one(p, evaluations[p.key]) for p in proposals if p.is_new and p.key]
        counts = count(proposals, results)
        self.counts = add(self.counts, counts)
        self._keep_front()
        return results, counts

    @property
    def front(self) -> tuple[str, ...]:
        """Digests of the non-dominated candidates, best first objective first."""
        return tuple(member.digest for member in self._members)

    @property
    def hypervolume(self) -> float:
        """Share of the box between the setup's ideal and reference point that is dominated."""
        setup = self._setup
        rows = [member.objectives for member in self._members]
        return scaled_hypervolume(setup.objectives, rows, setup.ideal_point, setup.reference_point)

    def _take_one(self, proposed: Proposed, repeats: Sequence[Evaluation]) -> Result:
        self._num_told += 1
        if not all(evaluation.is_ok for evaluation in repeats):
            return None
        means, _ = summarise([evaluation.objectives for evaluation in repeats])
        costs = as_costs(self._setup.objectives, means)
        self._members.append(_Member(proposed.digest, costs, means, self._num_told))
        if any(objective.name == ACCURACY for objective in self._setup.objectives):
            self.best_accuracy = max(means[ACCURACY], self.best_accuracy or 0.0)
        return costs

    def _keep_front(self) -> None:
        chosen = non_dominated([member.costs for member in self._members])
        self._members = [self._members[i] for i in chosen]
        self._members.sort(key=lambda member: (member.costs, member.order))


def count(proposals: Sequence[Proposed], results: Sequence[Result]) -> Counts:
    """What became of a generation's proposals."""
    outcomes = [proposed.outcome for proposed in proposals]
    return Counts(
        proposed=len(outcomes),
        evaluated=len(results),
        replayed=outcomes.count("replayed"),
        rejected=outcomes.count("rejected"),
        failed=sum(result is None for result in results),
    )


def add(a: Counts, b: Counts) -> Counts:
    """Sum of two counts."""
    return Counts(
        proposed=a.proposed + b.proposed,
        evaluated=a.evaluated + b.evaluated,
        replayed=a.replayed + b.replayed,
        rejected=a.rejected + b.rejected,
        failed=a.failed + b.failed,
    )
