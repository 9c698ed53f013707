"""The table of `nas evaluate`: means with their errors, and differences between pairs."""

from __future__ import annotations

from dataclasses import replace

from nas.evaluation.record import Evaluation
from nas.evaluation.study import Trial
from nas.report.trials import trial_answer, trial_table
from tests.report.conftest import Printed


def trial(name: str, repeat: int, accuracy: float | None) -> Trial:
    evaluation = Evaluation(
        status="ok",
        reason=None,
        objectives={
            "accuracy": accuracy or 0.0,
            "macs": 1e6,
            "params": 100.0,
            "kv_cache_bytes_per_token": 64.0,
        },
        curve=(),
        seed=repeat,
        budget="1 epoch",
        wall_seconds=2.0,
        core_seconds=1.5,
        peak_memory_bytes=1,
        worker="w",
        error=None,
    )
    if accuracy is None:
        evaluation = replace(
            evaluation, status="failed", reason="diverged", objectives={}, error="it diverged."
        )
    return Trial(name, "0" * 16, repeat, evaluation)


TRIALS = [
    trial("mha", 0, 0.50),
    trial("mha", 1, 0.54),
    trial("sqa", 0, 0.49),
    trial("sqa", 1, 0.53),
    trial("qana", 0, 0.52),
    trial("qana", 1, None),
]


def test_differences_are_those_of_pairs(pipe: Printed) -> None:
    """sqa is one point below in each pair: an error of zero, though both spread by two."""
    trial_table(pipe.console, TRIALS)
    text = "\n".join(pipe.lines)
    assert "over mha" in pipe.lines[0]
    rows = {line.split()[0]: line for line in pipe.lines if line}
    assert "51.0 ± 2.0" in rows["sqa"]
    assert "-1.0 ± 0.0" in rows["sqa"]
    assert "+2.0" in rows["qana"]
    assert " - " in rows["mha"]
    assert "qana, seed 1: diverged: it diverged." in text


def test_one_mechanism_once_has_nothing_to_compare(pipe: Printed) -> None:
    trial_table(pipe.console, TRIALS[:1])
    assert "±" not in "\n".join(pipe.lines)
    assert "share their seed" not in "\n".join(pipe.lines)


def test_the_answer_holds_every_training() -> None:
    answer = trial_answer("comparison", TRIALS)
    assert answer["task"] == "comparison"
    assert [e["status"] for e in answer["evaluations"]].count("failed") == 1
