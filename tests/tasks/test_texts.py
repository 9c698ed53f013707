"""Classes of texts: vocabulary, long texts, and padding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from nas.common.errors import DataError, NasWarning
from nas.evaluation.trainer import build_model
from nas.genome.mechanisms import mechanism
from nas.tasks import Task, load_task
from nas.tasks.sequences.model import PADDING
from nas.tasks.sequences.stories import GOOD, synthetic_reviews
from nas.tasks.sequences.texts import FIRST_WORD, RARE

SMALL = {"length": 6, "words": 6, "train_examples": 4, "validation_examples": 2, "heads": 8}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    texts = {"good": "Fine, fine film fine fine", "bad": "No. No film: no no no and on and on!"}
    for part in ("train", "test"):
        for name, text in texts.items():
            own = tmp_path / part / name
            own.mkdir(parents=True)
            for number in range(3):
                (own / f"{number}.txt").write_text(text)
    return tmp_path


def task_of(folder: Path, **overrides: int) -> Task:
    spec = f"textfolder:{folder}"
    return load_task("text-classification", data=spec, overrides=SMALL | overrides)


def test_a_long_text_is_its_first_and_last_words(folder):
    task = task_of(folder)
    data = task.load()
    assert data.facts["classes"] == ("bad", "good")
    assert data.facts["words"] <= 6
    for row, label in zip(data.train["tokens"], data.train["labels"], strict=True):
        assert row.shape == (6,)
        assert (row != PADDING).all()
        # "no . no" and "and on !"; "fine , fine film fine fine"
        assert (row[0] == row[4]) == (label == 1)
    rare = np.concatenate([data.train["tokens"], data.validation["tokens"]])
    assert RARE in rare
    assert rare.max() < FIRST_WORD + 4


def test_short_texts_are_padded_and_blank_and_unlabelled_ones_left_out(folder):
    (folder / "train" / "good" / "0.txt").write_text(" \n")
    (folder / "train" / "unsup").mkdir()
    (folder / "train" / "unsup" / "0.txt").write_text("without a label")
    task = task_of(folder, length=9)
    with pytest.warns(NasWarning) as warned:
        data = task.load()
    sentences = " ".join(str(warning.message) for warning in warned)
    assert "1 of 7 files are left out, such as unsup/0.txt" in sentences
    assert "1 of 6 texts are blank, and left out" in sentences
    rows = np.concatenate([data.train["tokens"], data.validation["tokens"]])
    counts = (rows != PADDING).sum(axis=1)
    assert sorted(counts.tolist()) == [6, 6, 9, 9, 9]
    assert all((row[:n] != PADDING).all() for row, n in zip(rows, counts, strict=True))


def test_texts_that_are_all_blank_are_an_error(folder):
    task = task_of(folder)
    for part, words in (("test", "of bad, good are blank"), ("train", "of good are blank")):
        for file in (folder / part).glob("*/*" if part == "test" else "good/*"):
            file.write_text(" \n")
        with pytest.raises(DataError, match=f"{words}.$"):
            (task.load_test if part == "test" else task.load)()


def test_texts_that_are_not_utf_8_are_counted(folder):
    (folder / "train" / "good" / "0.txt").write_bytes("Très bien".encode("utf-16"))
    (folder / "train" / "bad" / "1.txt").write_bytes("passé".encode("latin-1"))
    task = task_of(folder)
    with pytest.warns(NasWarning, match=r"2 of 6 texts have U\+FFFD in place of what is not UTF-8"):
        task.load()


def test_load_test_reads_the_test_part(folder):
    task = task_of(folder)
    assert task.load().count("validation") == 2
    assert task.load_test().count("validation") == 6
    assert np.array_equal(task.load().train["tokens"], task.load_test().train["tokens"])


def test_padding_and_other_texts_change_nothing():
    task = load_task("text-classification", overrides=SMALL | {"length": 12, "words": 40})
    data = task.load()
    model = build_model(task.resolve(mechanism("canon").genome), task, data, 0).double().eval()
    text = torch.randint(2, 30, (1, 7), generator=torch.Generator().manual_seed(0))
    padded = torch.nn.functional.pad(text, (0, 5), value=PADDING)
    others = torch.randint(2, 30, (2, 12), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        alone = model(padded)
        assert torch.isfinite(alone).all()
        beside = model(torch.cat([others, padded]))
        assert (beside[2:] - alone).abs().max() < 1e-9
        model.embed.weight[PADDING] += 3.0
        model.positions[:, 7:] += 3.0
        assert (model(padded) - alone).abs().max() < 1e-9


def test_synthetic_reviews_agree_with_their_class():
    reviews = synthetic_reviews(0, 50)
    assert [label for _, label in reviews] == [0, 1] * 25
    for text, label in reviews:
        score = 0
        for sentence in text.split(" . "):
            words = sentence.replace(" .", "").split()
            is_good = (words[-1] in GOOD) != ("not" in words)
            score += 1 if is_good else -1
        assert (score > 0) == bool(label), text


@pytest.mark.parametrize(
    ("name", "words"),
    [("other/a/1.txt", "found 1 folder"), ("train/a/1.txt", "at least two folders")],
)
def test_unusable_folder_is_an_error(tmp_path, name, words):
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text("words")
    with pytest.raises(DataError, match=words):
        load_task("text-classification", data=f"textfolder:{tmp_path}").load()
