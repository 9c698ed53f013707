"""A study trains each mechanism under the same seeds, equal ones once."""

from __future__ import annotations

from nas.common.differences import mean_and_error
from nas.evaluation.study import study
from nas.evaluation.trial import training_seed
from nas.genome.mechanisms import mechanism
from nas.tasks import load_task
from tests.evaluation.conftest import make_evaluation


class Instant:
    """An evaluator that answers at once, the last first."""

    def __init__(self):
        self.trials = []

    def submit(self, trials):
        self.trials += trials
        self.left = list(trials)

    def wait(self):
        answers = [(trial, make_evaluation(seed=trial.seed)) for trial in reversed(self.left)]
        self.left = []
        return answers


def test_study_pairs_seeds_and_trains_equal_mechanisms_once():
    evaluator = Instant()
    names = ["mha", "gqa", "same"]
    mechanisms = [(name, mechanism("mha" if name == "same" else name).genome) for name in names]
    results = list(study(mechanisms, load_task("recall"), evaluator, repeats=2, seed=5))
    assert len(evaluator.trials) == 4
    assert sorted((r.name, r.repeat) for r in results) == sorted(
        (n, i) for n in names for i in (0, 1)
    )
    for result in results:
        assert result.evaluation.seed == training_seed(5, "study", result.repeat)
    digests = {result.name: result.digest for result in results}
    assert digests["mha"] == digests["same"] != digests["gqa"]
    works = {trial.key: trial.work for trial in evaluator.trials}
    assert len(set(works.values())) == 2
    assert min(works.values()) > 0


def test_mean_and_error():
    assert mean_and_error([3.0]) == (3.0, None)
    assert mean_and_error([1.0, 3.0]) == (2.0, 1.0)
