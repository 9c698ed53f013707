"""Seeds of trainings, and which trainings are repeated."""

import pytest

from nas.evaluation.trial import is_retried, training_seed
from tests.evaluation.conftest import make_evaluation


def test_training_seed_is_pinned_and_depends_on_each_part():
    assert training_seed(0, "0123456789abcdef", 0) == 1804502978
    seeds = {training_seed(n, key, i) for n in range(5) for key in "abcde" for i in range(5)}
    assert len(seeds) == 125
    assert all(0 <= seed < 2**31 for seed in seeds)


@pytest.mark.parametrize(
    ("reason", "expected"), [("worker_lost", (True, True)), ("diverged", (False, True))]
)
def test_a_resumed_command_repeats_lost_trainings_or_all_failures(reason, expected):
    failure = make_evaluation(status="failed", reason=reason, metrics={})
    assert (is_retried(failure), is_retried(failure, retry_failed=True)) == expected
    assert not is_retried(make_evaluation(), retry_failed=True)
