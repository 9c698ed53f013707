"""Task files: built-in ones, overrides, and errors."""

from __future__ import annotations

from typing import get_args

import pytest

from nas.common.config import dump_yaml, parse_yaml
from nas.common.errors import ConfigError, TaskError
from nas.tasks import built_in_tasks, load_task, parse_task


def test_load_task_overrides_replace_the_files_fields():
    task = load_task("vit-cifar10", data="digits", overrides={"epochs": 1, "heads": 2})
    assert (task.data, task.epochs, task.heads) == ("digits", 1, 2)
    with pytest.raises(ConfigError, match=r"vit-cifar10\.yaml.*epochs"):
        load_task("vit-cifar10", overrides={"epochs": -1})


def test_for_data_sets_fields_for_a_data_spec(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(
        "name: own\nkind: images\nepochs: 2\nfor_data: {digits: {epochs: 9, width: 16}}\n"
    )
    assert load_task(str(path)).epochs == 2
    chosen = load_task(str(path), data="digits", overrides={"width": 8})
    assert (chosen.epochs, chosen.width) == (9, 8)


def test_the_reference_is_a_named_mechanism_and_changes_no_training():
    task = load_task("text")
    other = load_task("text", overrides={"reference": "rope:kv_heads=1/4"})
    assert (task.reference, load_task("bytes").reference) == ("rope", "mha")
    assert other.fingerprint() == task.fingerprint()
    with pytest.raises(ConfigError, match=r"reference: .*'ropes'.*did you mean 'rope'"):
        load_task("text", overrides={"reference": "ropes"})


@pytest.mark.parametrize("name", built_in_tasks())
def test_task_round_trips(name):
    task = load_task(name)
    again = parse_task(parse_yaml(dump_yaml(task.to_dict()), "copy"), "copy")
    assert again == task
    assert type(again) is type(task)
    assert again.fingerprint() == task.fingerprint()


# Fields that change no result; the data have a digest of their own.
APART = {"name": "x", "about": "y", "data": "z", "learning_rates": (1.0,), "reference": "rope"}


def other(value, annotation):
    """Another value of a field."""
    words = [word for word in get_args(annotation) if isinstance(word, str) and word != value]
    return words[0] if words else not value if isinstance(value, bool) else (value or 0) + 1


@pytest.mark.parametrize(
    "name", ["vit-cifar10", "recall", "induction", "copying", "bytes", "text-classification"]
)
def test_fingerprint_changes_with_every_field_that_changes_a_result(name):
    task = load_task(name)
    fields = {k: f.annotation for k, f in type(task).model_fields.items() if k not in APART}
    changed = [task.model_copy(update={k: other(getattr(task, k), a)}) for k, a in fields.items()]
    prints = {each.fingerprint() for each in (task, *changed)}
    assert len(prints) == len(changed) + 1 > 20
    assert task.model_copy(update=APART).fingerprint() == task.fingerprint()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- 1", "expected a mapping"),
        ("name: x", "'kind' is missing; expected one of "),
        ("name: x\nkind: images\nfor_data: {digit: {epochs: 2}}", "did you mean 'digits'?"),
        ("name: x\nkind: images\nepoch: 3", "did you mean 'epochs'?"),
        ("name: x\nkind: images\nwidth: 30\nheads: 2\npositions: sines", "a multiple of 4"),
        ("name: x\nkind: recall\ndata: digits", "found 'digits'; expected synthetic"),
        ("name: x\nkind: induction\npairs: 8", "more than num_keys, 8"),
        ("name: x\nkind: texts\ndata: textfolders:here", "did you mean 'textfolder'?"),
    ],
)
def test_load_task_locates_errors_in_a_file(tmp_path, text, words):
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_task(str(path))
    assert words in str(error.value)
    assert str(path) in str(error.value)


def test_rates_include_the_rate_of_the_task_and_give_the_tasks_of_these_rates():
    task = load_task("bytes")
    rates = task.at_rates()
    assert list(rates) == [0.003, 0.01, 0.03]
    assert rates[0.01].fingerprint() == task.fingerprint()
    slow = load_task("bytes", overrides={"learning_rate": 0.003})
    assert rates[0.003].fingerprint() == slow.fingerprint() != task.fingerprint()
    assert slow.learning_rates == ()  # they surround another rate
    with pytest.raises(TaskError, match="'bytes' offers no learning rates to choose from"):
        slow.at_rates()
