"""Bytes of a text: windows, validation, and that standard attention beats ``uniform``."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nas.common.errors import DataError
from nas.evaluation.trainer import train_candidate
from nas.evaluation.trial import Trial
from nas.genome.mechanisms import mechanism
from nas.tasks import load_task
from nas.tasks.sequences.stories import synthetic_stories

CPU = torch.device("cpu")
TEXT = bytes(range(200)) * 10


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "text.bin"
    found.write_bytes(TEXT)
    return found


def test_bytes_train_on_nine_tenths_and_evaluate_the_rest(path):
    task = load_task("bytes", data=f"file:{path}", overrides={"length": 16})
    data = task.load()
    assert data.train["text"].tobytes() == TEXT[:1800]
    rows = data.validation["rows"]
    assert rows.shape == (184, 17)  # as many places as there are
    assert all(row.tobytes() in TEXT[1800:] for row in rows)
    few = task.model_copy(update={"validation_examples": 3}).load().validation["rows"]
    assert [row[0] for row in few] == [0, 91, 183]


def test_a_batch_is_windows_and_their_next_bytes(path):
    task = load_task("bytes", data=f"file:{path}", overrides={"length": 16})
    data = task.load()
    windows = task.examples(data, "train", CPU, torch.float32)
    assert len(windows) == 1800 - 16
    shown, following = windows.batch(torch.tensor([0, 150, len(windows) - 1]))
    assert bytes(shown[1].tolist()) == TEXT[150:166]
    assert bytes(following[1].tolist()) == TEXT[151:167]
    assert bytes(following[2].tolist()) == TEXT[1784:1800]
    order = task.order(data, 1, torch.Generator().manual_seed(0))
    assert (len(order), int(order.max())) == (4400, len(windows) - 1)


def test_chance_of_bytes_knows_their_frequencies(path):
    task = load_task("bytes", data=f"file:{path}")
    bits, accuracy = task.metrics(task.load())
    assert (bits.name, bits.direction, bits.unit) == ("bits_per_byte", "min", "bit")
    assert bits.chance == pytest.approx(math.log2(200), abs=0.05)
    assert accuracy.chance <= 0.02


@pytest.mark.parametrize(
    ("name", "words"),
    [("short.txt", "expected at least"), ("none.txt", "there is no such file"), ("", "a folder")],
)
def test_unusable_text_is_an_error(tmp_path, name, words):
    (tmp_path / "short.txt").write_bytes(b"short")
    with pytest.raises(DataError, match=words):
        load_task("bytes", data=f"file:{tmp_path / name}").load()


def test_hugging_face_data_without_their_package_are_an_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"hf:tales/book: .* 'attention-nas\[hf\]'\."):
        load_task("bytes", data="hf:tales/book").load()


@pytest.mark.parametrize("kind", ["synthetic", "file"])
def test_a_text_has_no_test_set(path, kind):
    spec = "synthetic" if kind == "synthetic" else f"file:{path}"
    with pytest.raises(DataError, match=f"task 'bytes' has no test set with data {spec}"):
        load_task("bytes", data=spec).load_test()


def test_synthetic_stories_answer_their_questions():
    text = synthetic_stories(0, 20_000).decode()
    assert text == synthetic_stories(0, 20_000).decode() != synthetic_stories(1, 20_000).decode()
    for story in text.splitlines()[:-1]:
        facts, _, question = story.partition(" What has ")
        who, thing = question.split("?")[0], question.split("A ")[1].split(".")[0]
        assert f"{who} has a {thing}." in facts


@pytest.mark.parametrize("name", ["bytes", "text-classification"])
def test_made_is_an_earlier_name_of_synthetic(name):
    assert load_task(name, data="made") == load_task(name)


def test_tied_head_and_embedding_share_weights(path):
    task = load_task("bytes", data=f"file:{path}", overrides={"is_tied": True})
    model = task.build_model(task.load(), lambda _: torch.nn.Identity(), 0)
    assert model.head.weight is model.embed.weight


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_attention_beats_uniform_on_synthetic_stories(seed):
    task = load_task("bytes")
    data = task.load()
    mha, uniform = (
        train_candidate(Trial("key", mechanism(name).genome, seed), task, data)
        for name in ("mha", "uniform")
    )
    bits = uniform.metrics["bits_per_byte"]
    assert mha.metrics["bits_per_byte"] + 0.2 < bits < task.metrics(data)[0].chance


@pytest.mark.parametrize(("size", "words"), [(2**35, "do not fit into the memory"), (2**26, "ok")])
def test_text_is_read_within_the_memory(tmp_path, size, words):
    """A text may take as much memory as its bytes and little more."""
    path = tmp_path / "text.txt"
    path.touch()
    os.truncate(path, size)
    result = subprocess.run(
        [sys.executable, "-c", LOAD, str(path)], capture_output=True, text=True, check=False
    )
    assert words in result.stdout, result.stderr
    assert result.stdout.count("\n") == 1


LOAD = """
import resource, sys
from nas.common.errors import DataError
from nas.tasks import load_task
task = load_task("bytes", data=f"file:{sys.argv[1]}")
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**28,) * 2)
try:
    task.load()
    print("ok")
except DataError as error:
    print(error)
"""
