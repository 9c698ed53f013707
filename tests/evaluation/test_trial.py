"""An evaluation survives JSON and processes, and refuses what no evaluation holds."""

import json
import math
import pickle
import subprocess
import sys

import pytest

from nas.common.errors import RunError
from nas.evaluation.trial import REASONS, Budget, Evaluation, Report, training_seed
from tests.evaluation.conftest import make_evaluation


def through_json(evaluation):
    text = json.dumps(evaluation.to_dict(), allow_nan=False)
    return Evaluation.from_dict(json.loads(text))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"status": "stopped", "reports": ()},
        {"metrics": {"accuracy": 0.1 + 0.2, "log_loss": 1.5}, "wall_seconds": 1 / 3},
        *({"status": "failed", "reason": reason, "error": "it broke"} for reason in REASONS),
    ],
)
def test_evaluation_survives_json_and_processes(changes):
    evaluation = make_evaluation(**changes)
    assert through_json(evaluation) == evaluation
    assert pickle.loads(pickle.dumps(evaluation)) == evaluation
    assert evaluation.is_ok == ("status" not in changes)


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_evaluation_of_a_diverged_training_is_valid_json(loss):
    reports = (Report(1, loss, {"accuracy": loss}, 0.0),)
    metrics = {"accuracy": loss}
    diverged = make_evaluation(status="failed", reason="diverged", metrics=metrics, reports=reports)
    assert repr(through_json(diverged)) == repr(diverged)


def test_weights_travel_beside_the_record():
    evaluation = make_evaluation(weights=b"many")
    assert pickle.loads(pickle.dumps(evaluation)).weights == b"many"
    assert "weights" not in evaluation.to_dict()
    assert evaluation == make_evaluation()


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "failed"},
        {"reason": "error"},
        {"status": "running"},
        {"status": "failed", "reason": "bored"},
        {"status": "stopped", "reason": "error"},
        {"metrics": {"accuracy": math.nan}},
    ],
)
def test_evaluation_contradictions_are_refused(changes):
    with pytest.raises(ValueError, match=r"status|reason|metrics"):
        make_evaluation(**changes)
    with pytest.raises(RunError, match="no evaluation record"):
        Evaluation.from_dict({**make_evaluation().to_dict(), **changes})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("extra", 1),
        ("reports", 3),
        ("reports", [[1, 2]]),
        ("reports", [{"epoch": 1, "train_loss": 1.0, "metrics": {}, "core_seconds": "x"}]),
        ("metrics", [1]),
        ("budget", "long"),
        ("budget", {"epochs": "x", "examples": 1, "precision": "float32"}),
        ("wall_seconds", "long"),
        ("seed", None),
        ("peak_memory_bytes", []),
    ],
)
def test_a_malformed_record_names_its_field(field, value):
    with pytest.raises(RunError, match=rf"no evaluation record \({field}"):
        Evaluation.from_dict({**make_evaluation().to_dict(), field: value})


def test_budget_as_text():
    assert str(Budget(1, 64, "float32")) == "1 epoch x 64 examples, float32"
    assert str(Budget(3, 2880, "bfloat16")) == "3 epochs x 2880 examples, bfloat16"


def test_training_seed_is_pinned_and_depends_on_each_part():
    assert training_seed(0, "0123456789abcdef", 0) == 1804502978
    seeds = {training_seed(n, key, i) for n in range(5) for key in "abcde" for i in range(5)}
    assert len(seeds) == 125
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_reading_trials_and_tasks_imports_no_torch():
    code = (
        "import nas.evaluation.trial, nas.evaluation.journal, nas.evaluation.execution, nas.tasks, "
        "sys; sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
