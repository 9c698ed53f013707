"""What follows from recorded trainings: a result for each mechanism.

Pure functions of what was read. A mechanism has objectives only when its trainings have ended, and
ended well: one lucky seed of several is no result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nas.common.differences import mean_and_error
from nas.common.objectives import as_costs
from nas.common.pareto import hypervolume, non_dominated, normalise
from nas.store import rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nas.common.objectives import Objective
    from nas.store.records import Estimate, RunSetup


@dataclass(frozen=True, slots=True)
class Result:
    """What is known of a new proposal.

    Attributes:
        number, digest, key: of the proposal.
        trainings: how many have ended.
        costs: by name.
        scores: means of metrics over its trainings; None unless all ended well.
        errors: of these means; empty with a single training.
        estimate: what was believed after the last generation; None where it was not known then.
    """

    number: int
    digest: str
    key: str
    trainings: int
    costs: Mapping[str, float]
    scores: Mapping[str, float] | None
    errors: Mapping[str, float]
    estimate: Estimate | None

    @property
    def objectives(self) -> Mapping[str, float] | None:
        """Costs and metrics, these as believed; as measured where nothing is believed yet."""
        if self.scores is None:
            return None
        believed = self.estimate.means if self.estimate else {}
        return {**self.costs, **self.scores, **believed}


def result_of(
    setup: RunSetup, estimates: Mapping[str, Estimate], trained: Sequence[rows.Row]
) -> Result:
    """Sum up a candidate: a row a training, with columns of its proposal; one row if none ended.

    Costs and metrics of the rows are read; these are None where nothing ended.

    Raises:
        ValueError: it lacks one of the run's objectives.
    """
    first, ended = trained[0], [row for row in trained if row["status"] is not None]
    costs = rows.floats(first["costs"])
    scores: dict[str, float] | None = None
    errors: dict[str, float] = {}
    if len(ended) >= setup.repeats and all(row["status"] == "ok" for row in ended):
        scores, errors = summarise([rows.floats(row["metrics"]) for row in ended])
        if lacking := {o.name for o in setup.objectives} - costs.keys() - scores.keys():
            raise ValueError(f"{first['digest']} lacks {sorted(lacking)}")
    key = first["key"]
    where = first["number"], first["digest"], key
    return Result(*where, len(ended), costs, scores, errors, estimates.get(key))


def summarise(
    repeats: Sequence[Mapping[str, float]],
) -> tuple[dict[str, float], dict[str, float]]:
    """Mean and standard error of each metric over a candidate's repeats; one alone has no error."""
    if len(repeats) == 1:
        return dict(repeats[0]), {}
    found = {name: mean_and_error([values[name] for values in repeats]) for name in repeats[0]}
    means = {name: mean for name, (mean, _) in found.items()}
    return means, {name: error for name, (_, error) in found.items() if error is not None}


def scaled_hypervolume(
    objectives: Sequence[Objective], members: Sequence[Mapping[str, float]]
) -> float:
    """Share of the box between the objectives' ideals and references that is dominated, 0 to 1."""
    ideal = [o.as_cost(o.ideal) for o in objectives]
    reference = [o.as_cost(o.reference) for o in objectives]
    scaled = normalise([as_costs(objectives, row) for row in members], ideal, reference)
    return hypervolume(scaled, (1.0,) * len(objectives))


def front_of(objectives: Sequence[Objective], results: Sequence[Result]) -> list[Result]:
    """The non-dominated results, best first objective first, then in order of proposal.

    By estimates, as the last generation left them; by scores before there are any.
    """
    believed = [result for result in results if result.estimate]
    known = [(r.objectives, r) for r in believed or results]
    rows = [(as_costs(objectives, values), r) for values, r in known if values]
    members = [rows[i] for i in non_dominated([costs for costs, _ in rows])]
    members.sort(key=lambda member: (member[0], member[1].number))
    return [found for _, found in members]
