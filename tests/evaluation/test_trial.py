"""An evaluation survives JSON and processes, and refuses what no evaluation holds."""

import dataclasses
import json
import math
import pickle
import subprocess
import sys
from typing import Any

import pytest

from nas.errors import RunError
from nas.evaluation.trial import (
    REASONS,
    Budget,
    Evaluation,
    Report,
    Stop,
    Trial,
    run_trials,
    training_seed,
)
from nas.mechanisms import mechanism


def report(epoch: int = 1, **metrics: float) -> Report:
    return Report(epoch, 2.25, metrics or {"accuracy": 0.125}, 0.5 * epoch)


def make_evaluation(**changes: Any) -> Evaluation:
    fields: dict[str, Any] = {
        "status": "ok",
        "reason": None,
        "metrics": {"accuracy": 0.1 + 0.2, "log_loss": 1.5},
        "reports": (report(1), report(2)),
        "seed": 7,
        "budget": Budget(2, 64, "float32"),
        "wall_seconds": 1.5,
        "core_seconds": 1.25,
        "peak_memory_bytes": 2**33,
        "worker": "host:12",
        "hardware": "a processor",
        "execution": "cuda graph",
    }
    return Evaluation(**{**fields, **changes})


def test_evaluation_round_trips_through_json():
    evaluation = make_evaluation()
    text = json.dumps(evaluation.to_dict(), allow_nan=False)
    assert Evaluation.from_dict(json.loads(text)) == evaluation


def test_weights_travel_beside_the_record():
    evaluation = make_evaluation(weights=b"many")
    assert pickle.loads(pickle.dumps(evaluation)).weights == b"many"
    assert "weights" not in evaluation.to_dict()
    assert evaluation == make_evaluation()


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_evaluation_of_a_diverged_training_is_valid_json(loss):
    evaluation = make_evaluation(
        status="failed",
        reason="diverged",
        metrics={"accuracy": loss},
        reports=(Report(1, loss, {"accuracy": loss}, 0.0),),
    )
    text = json.dumps(evaluation.to_dict(), allow_nan=False)
    again = Evaluation.from_dict(json.loads(text))
    assert repr(again) == repr(evaluation)


@pytest.mark.parametrize("reason", REASONS)
def test_evaluation_keeps_each_reason(reason):
    evaluation = make_evaluation(status="failed", reason=reason, metrics={}, error="it broke")
    assert Evaluation.from_dict(evaluation.to_dict()) == evaluation
    assert not evaluation.is_ok


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
    "changes",
    [{"extra": 1}, {"reports": [[1, 2]]}, {"reports": 3}, {"metrics": [1]}, {"budget": "long"}],
)
def test_evaluation_malformed_data_is_one_sentence(changes):
    data = make_evaluation().to_dict()
    with pytest.raises(RunError, match="no evaluation record"):
        Evaluation.from_dict({**data, **changes})
    del data["worker"]
    with pytest.raises(RunError, match="worker"):
        Evaluation.from_dict(data)


def test_evaluation_travels_to_another_process():
    evaluation = make_evaluation()
    assert pickle.loads(pickle.dumps(evaluation)) == evaluation
    with pytest.raises(dataclasses.FrozenInstanceError):
        evaluation.seed = 1  # type: ignore[misc]


def test_a_stopped_training_is_neither_ok_nor_failed():
    stopped = make_evaluation(status="stopped", reports=(report(1),))
    assert not stopped.is_ok
    assert Evaluation.from_dict(stopped.to_dict()) == stopped


@pytest.mark.parametrize(
    ("stop", "ends"),
    [
        (Stop(2, "accuracy", 0.5), True),
        (Stop(2, "accuracy", 0.3), False),
        (Stop(1, "accuracy", 0.5), False),
        (Stop(2, "log_loss", 1.0, "min"), True),
        (Stop(2, "log_loss", 2.0, "min"), False),
    ],
)
def test_stop_ends_after_a_report_that_is_too_bad(stop, ends):
    assert stop.applies(report(2, accuracy=0.3, log_loss=2.0)) is ends


def test_budget_is_said_in_words():
    assert str(Budget(1, 64, "float32")) == "1 epoch x 64 examples, float32"
    assert str(Budget(3, 2880, "bfloat16")) == "3 epochs x 2880 examples, bfloat16"


def test_run_trials_gives_all_that_come():
    class Pairs:
        """Answers two at a time."""

        def submit(self, trials: Any) -> None:
            self.left = list(trials)

        def wait(self) -> Any:
            now, self.left = self.left[:2], self.left[2:]
            return [(trial, make_evaluation()) for trial in now]

    trials = [Trial(key, mechanism("mha").genome, 0) for key in "abcde"]
    assert [trial for trial, _ in run_trials(Pairs(), trials)] == trials  # type: ignore[arg-type]


def test_training_seed_is_pinned_and_depends_on_each_part():
    assert training_seed(0, "0123456789abcdef", 0) == 1804502978
    seeds = {training_seed(n, key, i) for n in range(5) for key in "abcde" for i in range(5)}
    assert len(seeds) == 125
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_what_reads_trials_imports_no_torch():
    code = (
        "import nas.evaluation.trial, nas.evaluation.journal, nas.evaluation.backends, nas.tasks, "
        "sys; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
