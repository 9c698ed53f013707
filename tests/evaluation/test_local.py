"""The local backend: one candidate after the other; a failure costs that candidate alone."""

from __future__ import annotations

import signal
from contextlib import suppress

import pytest

from nas.common.errors import DeviceError
from nas.evaluation.trainer import LocalEvaluator, train_candidate, worker_name
from nas.evaluation.trial import Budget, run_trials


def unruly_training(trial, task, data, **limits):
    faults = {
        "memory": MemoryError("no room"),
        "exception": LookupError("broken"),
        "recursion": RecursionError("too deep"),
        "exit": SystemExit(0),
        "generator": GeneratorExit(),
        "interrupt": KeyboardInterrupt(),
        "device": DeviceError("there is no GPU here."),
    }
    if trial.key in faults:
        raise faults[trial.key]
    if trial.key in ("ctrl-c", "terminated"):
        signal.raise_signal(signal.SIGINT if trial.key == "ctrl-c" else signal.SIGTERM)
    if trial.key == "swallowed":
        with suppress(BaseException):
            signal.raise_signal(signal.SIGINT)
    if trial.key == "diverged":
        task = task.model_copy(update={"learning_rate": 1e30})
    if trial.key == "slow":
        task = task.model_copy(update={"epochs": 1000})
        return train_candidate(trial, task, data, **limits)
    return train_candidate(trial, task, data, device=limits["device"])


def test_failures_cost_no_other_candidate(task, data, trials_named):
    expected = {
        "a": None,
        "memory": "out_of_memory",
        "exception": "error",
        "exit": "error",
        "interrupt": "error",  # raised by a primitive, it ended the command
        "generator": "error",
        "diverged": "diverged",
        "recursion": "error",
        "slow": "time_limit",
        "b": None,
    }
    evaluator = LocalEvaluator(task, data, time_limit=0.5, train=unruly_training)
    answers = list(run_trials(evaluator, trials_named(*expected)))
    assert evaluator.wait() == []
    evaluator.close()
    assert [(trial.key, found.reason) for trial, found in answers] == list(expected.items())
    caught = answers[2][1]
    assert caught.error == "LookupError: broken"
    assert caught.worker == worker_name()
    assert caught.budget == Budget(1, 64, "auto")
    assert caught.seed == 2


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("ctrl-c", KeyboardInterrupt),
        ("swallowed", KeyboardInterrupt),
        ("terminated", KeyboardInterrupt),
        ("device", DeviceError),
    ],
)
def test_interrupts_and_device_errors_are_raised(task, data, trials_named, key, expected):
    evaluator = LocalEvaluator(task, data, train=unruly_training)
    evaluator.submit(trials_named("a", key, "b"))
    ((_, first),) = evaluator.wait()
    assert first.is_ok
    kept = signal.signal(signal.SIGTERM, signal.default_int_handler)  # as `nas` does
    try:
        with pytest.raises(expected):
            evaluator.wait()
        assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGTERM, kept)
