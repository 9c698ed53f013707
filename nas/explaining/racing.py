"""Train the mechanisms of an explanation. Undecided comparisons get further seeds.

All mechanisms are trained with the same seeds, which no other command uses. Two mechanisms are
compared after several numbers of seeds; nas.common.differences corrects for this repetition. A pair
with a failed training is not decided and gets no further seeds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nas.common.differences import Finding, findings, paired, successful
from nas.common.objectives import Metric
from nas.evaluation.study import study
from nas.evaluation.trial import Evaluation, Evaluator, Training
from nas.tasks import Data, Task

if TYPE_CHECKING:
    from nas.explaining.plan import Explanation


@dataclass
class Race:
    """The finished trainings of ``nas.explain``, and the choice of the next trainings.

    A comparison that the finished trainings decide gets no further seeds.

    Attributes:
        plan: the mechanisms to train, and the pairs of mechanisms to compare.
        metric: the metric that is compared.
        looks: numbers of seeds at which undecided comparisons are tested, ascending.
        margin: largest difference of the metric that counts as no difference.
        evaluations: finished trainings, by the key of the mechanism and the index of the seed.
    """

    plan: Explanation
    metric: Metric
    looks: Sequence[int]
    margin: float
    evaluations: dict[str, dict[int, Evaluation]] = field(default_factory=lambda: defaultdict(dict))

    def scores(self, key: str) -> dict[int, float | None]:
        """Return the metric of each training of a mechanism, by index of the seed.

        The metric is None if the training failed or was stopped.
        """
        evaluations = sorted(self.evaluations[key].items())
        return {r: e.metrics[self.metric.name] if e.is_ok else None for r, e in evaluations}

    def values(self, key: str) -> dict[int, float]:
        """Return the metric of each successful training of a mechanism, by index of the seed."""
        return successful(self.scores(key))

    def has_failed(self, pair: Sequence[str]) -> bool:
        """Return whether a training of a mechanism of the pair failed or was stopped."""
        return any(None in self.scores(key).values() for key in pair)

    def findings(self) -> dict[tuple[str, str], Finding | None]:
        """Return what is known about the difference between the mechanisms of each pair of keys.

        It is the metric of the second mechanism minus the metric of the first. The finding is None
        if a training failed or is missing.
        """
        pairs = list(dict.fromkeys(comparison.pair for comparison in self.plan.comparisons))
        gains = [paired(self.scores(after), self.scores(before)) for before, after in pairs]
        results = findings(gains, self.looks, self.margin, self.metric.direction)
        return dict(zip(pairs, results, strict=True))

    def undecided(self) -> list[str]:
        """Return the keys of mechanisms in undecided pairs, which need further seeds."""
        open_pairs = [
            pair
            for pair, finding in self.findings().items()
            if not self.has_failed(pair) and (finding is None or finding.verdict == "unresolved")
        ]
        return list(dict.fromkeys(key for pair in open_pairs for key in pair))

    def run(
        self,
        task: Task,
        data: Data,
        evaluator: Evaluator,
        seed: int,
        known: Collection[Training] = (),
    ) -> Iterator[tuple[Training, int]]:
        """Train mechanisms until all pairs are decided or the last number of seeds is reached.

        Yields:
            Each finished training, and the number of trainings planned so far.

        Args:
            seed: a seed from which the seeds of the trainings derive.
            known: recorded trainings, which are not repeated.
        """
        total = 0
        for first, look in zip((0, *self.looks), self.looks, strict=False):
            mechanisms = [(key, self.plan.mechanisms[key]) for key in self.undecided()]
            total += len(mechanisms) * (look - first)
            for training in study(
                mechanisms,
                task,
                data,
                evaluator,
                repeats=look,
                first=first,
                seed=seed,
                purpose="explain",
                known=known,
            ):
                self.evaluations[str(training.name)][training.repeat] = training.evaluation
                yield training, total
