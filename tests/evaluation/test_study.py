"""A study trains each mechanism under the same seeds, equal ones once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from nas.evaluation.study import study, study_at_rates
from nas.evaluation.trial import task_fingerprint, training_seed
from nas.genome.mechanisms import mechanism
from nas.tasks import Data, load_task
from tests.evaluation.conftest import make_evaluation

DATA = Data(name="none", train={}, validation={}, digest="0")


def accuracy(trial):
    return trial.seed % 7 / 1000 - (trial.learning_rate == 0.01)


class Instant:
    """An evaluator that answers at once, the last first."""

    def __init__(self):
        self.trials = []

    def submit(self, trials):
        self.trials += trials
        self.left = list(trials)

    def wait(self):
        answers = [
            (trial, make_evaluation(seed=trial.seed, metrics={"accuracy": accuracy(trial)}))
            for trial in reversed(self.left)
        ]
        self.left = []
        return answers


def studied(mechanisms, evaluator, data=DATA, **options):
    task = load_task("recall")
    return list(study(mechanisms, task, data, lambda: evaluator, repeats=range(2), **options))


def test_recorded_trainings_are_not_repeated_and_failures_are():
    evaluator = Instant()
    mechanisms = [("mha", mechanism("mha").genome)]
    first, second = studied(mechanisms, evaluator)
    failure = make_evaluation(status="failed", reason="error", seed=second.evaluation.seed)
    known = [first, replace(second, evaluation=failure), replace(first, purpose="explain")]
    again = Instant()
    results = studied(mechanisms, again, known=known)
    assert {training.repeat for training in results} == {0, 1}
    assert [trial.seed for trial in again.trials] == [second.evaluation.seed]
    other = replace(DATA, digest="1")
    results = studied(mechanisms, again, other, known=known)
    assert len(results) == 2
    assert len(again.trials) == 3


def test_study_pairs_seeds_and_trains_equal_mechanisms_once():
    evaluator = Instant()
    names = ["mha", "gqa", "same"]
    mechanisms = [(name, mechanism("mha" if name == "same" else name).genome) for name in names]
    results = studied(mechanisms, evaluator, seed=5)
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


def test_study_at_rates_trains_reported_seeds_at_open_rates_only():
    evaluator, again = Instant(), Instant()
    task = load_task("recall")
    (metric, *_), rates = task.metrics(DATA), task.at_rates()
    mechanisms = [(name, mechanism(name).genome) for name in ("mha", "gqa")]
    options = {"metric": metric, "repeats": range(5)}
    trained = list(study_at_rates(mechanisms, task, DATA, lambda: evaluator, **options))
    for each in trained:
        assert each.task == task_fingerprint(rates[each.learning_rate], DATA)
    assert Counter((each.name, each.learning_rate) for each in trained) == {
        (name, rate): 2 if rate == 0.01 else 5 for name, _ in mechanisms for rate in rates
    }
    options["known"] = trained
    known = list(study_at_rates(mechanisms, task, DATA, lambda: again, **options))
    assert len(known) == len(trained)
    assert again.trials == []
