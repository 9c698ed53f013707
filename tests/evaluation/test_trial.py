"""The evaluation record survives JSON and processes, and refuses what no evaluation holds."""

import dataclasses
import json
import math
import pickle
import subprocess
import sys
from typing import Any

import pytest

from nas.errors import RunError
from nas.evaluation.record import OBJECTIVES, REASONS, Evaluation, Job, training_seed
from nas.training.curve import Epoch


def make_evaluation(**changes: Any) -> Evaluation:
    fields: dict[str, Any] = {
        "status": "ok",
        "reason": None,
        "objectives": {"accuracy": 0.1 + 0.2, "macs": 1234567.0},
        "curve": (Epoch(1, 2.25, 0.125), Epoch(2, 1.75, 0.25)),
        "seed": 7,
        "budget": "2 epochs x 64 images",
        "wall_seconds": 1.5,
        "core_seconds": 1.25,
        "peak_memory_bytes": 2**33,
        "worker": "host:12",
        "error": None,
    }
    return Evaluation(**{**fields, **changes})


def test_evaluation_round_trips_through_json() -> None:
    evaluation = make_evaluation()
    text = json.dumps(evaluation.to_dict(), allow_nan=False)
    assert Evaluation.from_dict(json.loads(text)) == evaluation


def test_evaluation_of_an_older_version_says_nothing_of_its_execution() -> None:
    data = make_evaluation(execution="cuda graph").to_dict()
    assert Evaluation.from_dict(data).execution == "cuda graph"
    del data["execution"]
    assert Evaluation.from_dict(data) == make_evaluation()


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_evaluation_diverged_curve_is_valid_json(loss: float) -> None:
    evaluation = make_evaluation(
        status="failed",
        reason="diverged",
        objectives={"accuracy": loss},
        curve=(Epoch(1, loss, 0.1),),
    )
    text = json.dumps(evaluation.to_dict(), allow_nan=False)
    again = Evaluation.from_dict(json.loads(text))
    assert repr(again) == repr(evaluation)


@pytest.mark.parametrize("reason", REASONS)
def test_evaluation_keeps_each_reason(reason: str) -> None:
    evaluation = make_evaluation(status="failed", reason=reason, objectives={}, error="it broke")
    assert Evaluation.from_dict(evaluation.to_dict()) == evaluation
    assert not evaluation.is_ok


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "failed"},
        {"reason": "error"},
        {"status": "running"},
        {"status": "failed", "reason": "bored"},
        {"objectives": {"accuracy": math.nan}},
        {"objectives": {}},
    ],
)
def test_evaluation_contradictions_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        make_evaluation(**changes)
    with pytest.raises(RunError, match="no evaluation record"):
        Evaluation.from_dict({**make_evaluation().to_dict(), **changes})


@pytest.mark.parametrize(
    "changes", [{"extra": 1}, {"curve": [[1, 2]]}, {"curve": 3}, {"objectives": [1]}]
)
def test_evaluation_malformed_data_is_one_sentence(changes: dict[str, Any]) -> None:
    with pytest.raises(RunError, match="no evaluation record"):
        Evaluation.from_dict({**make_evaluation().to_dict(), **changes})


def test_evaluation_missing_field_is_named() -> None:
    data = make_evaluation().to_dict()
    del data["worker"]
    with pytest.raises(RunError, match="worker"):
        Evaluation.from_dict(data)


def test_evaluation_travels_to_another_process() -> None:
    evaluation = make_evaluation()
    assert pickle.loads(pickle.dumps(evaluation)) == evaluation
    with pytest.raises(dataclasses.FrozenInstanceError):
        evaluation.seed = 1  # type: ignore[misc]


def test_job_is_a_value() -> None:
    fields = [field.name for field in dataclasses.fields(Job)]
    assert fields == ["key", "genome", "seed"]


def test_objectives_have_directions_and_units() -> None:
    assert list(OBJECTIVES) == [
        "accuracy",
        "macs",
        "params",
        "kv_cache_bytes_per_token",
        "latency_ms",
    ]
    assert [
        objective.name for objective in OBJECTIVES.values() if objective.direction == "max"
    ] == ["accuracy"]
    assert all(objective.unit and objective.about for objective in OBJECTIVES.values())


def test_training_seed_is_pinned() -> None:
    assert training_seed(0, "0123456789abcdef", 0) == 1804502978


def test_training_seed_depends_on_each_part() -> None:
    seeds = {
        training_seed(run, key, repeat)
        for run in range(5)
        for key in "abcde"
        for repeat in range(5)
    }
    assert len(seeds) == 125
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_record_imports_no_torch() -> None:
    code = "import nas.evaluation.record, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
