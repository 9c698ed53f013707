"""How trainings are computed: measured once a machine, kept, applied, and read back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from nas.compiler import runtime
from nas.errors import DeviceError, RunError
from nas.evaluation import choices as room
from nas.evaluation.choices import Choices, choose
from nas.evaluation.guard import train_guarded
from nas.evaluation.local import LocalEvaluator
from nas.evaluation.record import Job
from nas.kernels import Measured
from nas.mechanisms import mechanism
from nas.tasks import ImageData, Task, load_images, load_task
from nas.training.hardware import resolve_precision

WAYS = {"dot_product forward_backward cpu float32 17": {8: "fused", 32: "explicit"}}
CHOSEN = Choices("float32", WAYS, "a machine")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NAS_CACHE", str(tmp_path))
    return tmp_path / "choices"


@pytest.fixture
def task() -> Task:
    sizes = {"image_size": 8, "patch": 2, "width": 32, "batch_size": 16}
    sizes |= {"epochs": 1, "train_images": 64, "validation_images": 32}
    return load_task("vit-cifar10", data="digits", overrides=sizes)


@pytest.fixture
def data(task: Task) -> ImageData:
    return load_images("digits", task)


def refuse(*arguments: Any, **options: Any) -> Any:
    raise AssertionError("nothing is to be measured")


def test_choices_are_read_as_they_were_written() -> None:
    assert Choices.from_dict(json.loads(json.dumps(CHOSEN.to_dict()))) == CHOSEN


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"precision": "int8", "ways": {}, "measured_on": ""},
        {"precision": "float32", "ways": {"a place": ["fused"]}, "measured_on": ""},
        {"precision": "float32", "ways": {"a place": {"wide": "fused"}}, "measured_on": ""},
    ],
)
def test_other_data_are_no_choices(data: dict[str, Any]) -> None:
    with pytest.raises(RunError, match="no record of choices"):
        Choices.from_dict(data)


def test_what_was_measured_is_kept_for_the_next_run(
    task: Task, data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = choose(task, data, "cpu")
    assert first.ways
    assert first.precision == resolve_precision("auto", torch.device("cpu"))
    assert torch.__version__ in first.measured_on
    monkeypatch.setattr(room, "measure_ways", refuse)
    assert choose(task, data, "cpu") == first
    # Neither epochs nor data change what is fast; width and precision do.
    assert choose(task.model_copy(update={"epochs": 9}), data, "cpu") == first
    for change in ({"width": 64}, {"batch_size": 8}, {"precision": "float32"}):
        other = task.model_copy(update=change)
        if resolve_precision(other.precision, torch.device("cpu")) != first.precision or (
            "precision" not in change
        ):
            with pytest.raises(AssertionError, match="measured"):
                choose(other, data, "cpu")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"precision": "float32"}', "\x00"])
def test_a_damaged_file_is_measured_again(
    task: Task, data: ImageData, folder: Path, text: str
) -> None:
    choose(task, data, "cpu")
    (path,) = folder.iterdir()
    path.write_text(text)
    again = choose(task, data, "cpu")
    assert Choices.from_dict(json.loads(path.read_text())) == again


def test_a_cache_that_cannot_be_written_costs_time_alone(
    task: Task, data: ImageData, folder: Path
) -> None:
    folder.write_text("a file where a folder should be")
    assert choose(task, data, "cpu").ways


def test_a_missing_device_is_one_sentence(task: Task, data: ImageData) -> None:
    with pytest.raises(DeviceError, match="cuda:63"):
        choose(task, data, "cuda:63")


def test_a_training_computes_as_chosen_and_leaves_no_trace(task: Task) -> None:
    seen = []

    def train(job: Any, task: Task, data: Any, **limits: Any) -> Any:
        seen.append((task.precision, Measured.ways))
        raise RuntimeError("a fault")

    job = Job("key", mechanism("mha").genome, 0)
    limits: dict[str, Any] = {"device": "cpu", "time_limit": None}
    for choices in (CHOSEN, None):
        found = train_guarded(train, job, task, None, **limits, choices=choices)  # type: ignore[arg-type]
        assert (found.reason, Measured.ways) == ("error", {})
    assert seen == [("float32", WAYS), (task.precision, {})]


def test_a_search_worker_computes_in_the_ways_given(
    task: Task, data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job("key", mechanism("mha").genome, 0)
    calls = []
    fused = runtime.fused_attention
    monkeypatch.setattr(runtime, "fused_attention", lambda *a: calls.append(1) or fused(*a))
    losses, counts = [], []
    for name in ("explicit", "fused"):
        evaluator = LocalEvaluator(task, data)
        place = "dot_product forward_backward cpu float32 17"
        evaluator.use(replace(CHOSEN, ways={place: {8: name}}))
        ((_, evaluation),) = evaluator.run([job])
        losses.append(evaluation.curve[0].train_loss)
        counts.append(len(calls))
    assert counts == [0, 2 * 4]  # layers by steps
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize(("is_faster", "expected"), [(True, 4), (False, 1)])
def test_whether_seeds_train_together_is_measured_once_and_under_the_other_choices(
    task: Task,
    data: ImageData,
    monkeypatch: pytest.MonkeyPatch,
    is_faster: bool,
    expected: int,
) -> None:
    alone, asked = choose(task, data, "cpu"), []

    def measured(chosen: Task, data: ImageData, device: str, seeds: int) -> bool:
        asked.append((chosen.precision, Measured.ways, seeds))
        return is_faster

    monkeypatch.setattr(room, "is_faster_together", measured)
    for _ in range(2):
        found = choose(task, data, "cpu", seeds=4)
        assert found == replace(alone, seeds_together=expected)
    assert asked == [(alone.precision, alone.ways, 4)]
    assert Choices.from_dict(found.to_dict()) == found


def test_records_that_say_nothing_of_seeds_train_in_turn() -> None:
    older = CHOSEN.to_dict()
    del older["seeds_together"]
    assert Choices.from_dict(older) == CHOSEN
    with pytest.raises(RunError, match="no record of choices"):
        Choices.from_dict({**older, "seeds_together": 0})
