"""Hugging Face data: splits, columns, file formats, and errors."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from nas.common.errors import DataError
from nas.tasks import load_task

if TYPE_CHECKING:
    from pathlib import Path

datasets = pytest.importorskip("datasets", reason="needs datasets: pip install 'attention-nas[hf]'")

LINES = [f"line {i}" if i % 3 else f"line {i}\n" for i in range(60)]
TEXT = "".join(f"line {i}\n" for i in range(60)).encode()
WORDS = {"bad": "dull and flat", "good": "bright and rich"}
SMALL = {"length": 6, "words": 20, "train_examples": 12, "validation_examples": 4}


@pytest.fixture(autouse=True)
def offline(tmp_path, monkeypatch):
    """Do not use the network or the user's cache."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)


def texts(**parts: list[str]):
    return datasets.DatasetDict(
        {name: datasets.Dataset.from_dict({"text": lines}) for name, lines in parts.items()}
    )


def reviews(**columns):
    """Sixteen reviews of each class; only those of the test part contain "fiddle"."""

    def part(behind: str):
        names = ["bad", "good"] * 16
        rows = {"text": [WORDS[name] + behind for name in names], "label": names}
        return datasets.Dataset.from_dict(rows | columns).class_encode_column("label")

    return datasets.DatasetDict({"train": part(" film"), "test": part(" fiddle")})


def saved(data, folder: Path, form: str = "parquet") -> str:
    if form == "disk":
        data.save_to_disk(folder)
        return f"hf:{folder}"
    folder.mkdir()
    for name, part in data.items():
        if form != "parquet":  # a form that knows no classes, only their names
            labels = [part.features["label"].names[value] for value in part["label"]]
            part = part.remove_columns("label").add_column("label", labels)
        getattr(part, f"to_{form}")(folder / f"{name}.{form}")
    return f"hf:{folder}"


def loaded(task: str, spec: str, *, is_tested: bool = False):
    found = load_task(task, data=spec, overrides={"length": 16} if task == "bytes" else SMALL)
    return found.load_test() if is_tested else found.load()


def test_bytes_are_the_lines_of_the_training_part(tmp_path):
    spec = saved(texts(train=LINES, test=["never seen"] * 9), tmp_path / "data")
    data = loaded("bytes", spec)
    assert data.train["text"].tobytes() == TEXT[: len(TEXT) * 9 // 10]
    (tmp_path / "text.txt").write_bytes(TEXT)
    assert data.digest == loaded("bytes", f"file:{tmp_path / 'text.txt'}").digest
    assert data.digest == hashlib.blake2b(TEXT, digest_size=8).hexdigest()


@pytest.mark.parametrize(
    ("split", "first", "count"),
    [(":extra", "more 0", 50), (":train[:50%]", "line 0", 30), (":train+extra", "line 0", 110)],
)
def test_splits_with_names_slices_and_sums(tmp_path, split, first, count):
    data = texts(train=LINES, extra=[f"more {i}" for i in range(50)])
    found = loaded("bytes", saved(data, tmp_path / "data", "disk") + split)
    text = found.train["text"].tobytes()
    assert text.startswith(f"{first}\n".encode())
    assert text.count(b"\n") >= count * 9 // 10 - 3


def test_classes_are_the_same_in_all_forms_of_files(tmp_path):
    found = [
        loaded("text-classification", saved(reviews(), tmp_path / form, form))
        for form in ("parquet", "disk", "csv", "json")
    ]
    assert {data.facts["classes"] for data in found} == {("bad", "good")}
    assert len({data.digest for data in found}) == 1
    assert (found[0].count("train"), found[0].count("validation")) == (12, 4)


def test_classes_are_tested_on_the_test_part_only(tmp_path):
    spec = saved(reviews(), tmp_path / "data")
    own = loaded("text-classification", spec)
    test = loaded("text-classification", spec, is_tested=True)
    assert test.count("validation") == 32
    assert (own.train["tokens"] == test.train["tokens"]).all()
    last = {row[row > 0][-1] for row in own.validation["tokens"]}
    assert last.isdisjoint({row[row > 0][-1] for row in test.validation["tokens"]})


def hidden(data):
    """A test part without labels, as in GLUE."""
    unlabelled = {"text": ["dull"] * 3, "label": [-1] * 3}
    test = datasets.Dataset.from_dict(unlabelled, features=data["test"].features)
    return datasets.DatasetDict(data | {"test": test})


def missing(data):
    labels = [*data["train"]["label"][:30], None, None]
    train = data["train"].remove_columns("label").add_column("label", labels)
    return datasets.DatasetDict({"train": train})


@pytest.mark.parametrize(
    ("change", "split", "is_tested", "words"),
    [
        (lambda d: d.rename_column("text", "a").map(lambda row: {"b": row["a"]}), "", False,
         r"found the columns a \(string\), label \(ClassLabel\), b \(string\); expected text"),
        (hidden, "", True, "3 texts of its test part are of no class"),
        (lambda d: d, ":tests", False, 'Unknown split "tests"'),
        (lambda d: d, ":train[:1]", False, "found 1 texts of 2 classes"),
    ],
)  # fmt: skip
def test_unusable_data_are_an_error(tmp_path, change, split, is_tested, words):
    spec = saved(change(reviews()), tmp_path / "data", "disk")
    with pytest.raises(DataError, match=words) as error:
        loaded("text-classification", spec + split, is_tested=is_tested)
    assert str(error.value).startswith(spec)
    assert "\n" not in str(error.value)


def kept(tmp_path: Path, config: str, lines: list[str]) -> None:
    """Put a data set of the Hub into the package's cache."""
    source = tmp_path / f"{config}.parquet"
    texts(train=lines)["train"].to_parquet(source)
    own = datasets.load_dataset_builder("parquet", data_files=str(source))
    own.dataset_name, own.info.config_name = "book", config
    own.download_and_prepare(str(tmp_path / "cache" / "tales___book" / config / "0.0.0" / "0"))


def test_hub_names_with_a_configuration(tmp_path, monkeypatch):
    kept(tmp_path, "long", LINES)
    kept(tmp_path, "other", ["another line"] * 40)
    (tmp_path / "tales" / "book").mkdir(parents=True)  # never mistaken for the Hub's
    monkeypatch.chdir(tmp_path)
    assert loaded("bytes", "hf:tales/book/long:train").train["text"].tobytes() in TEXT
    assert b"another line" in loaded("bytes", "hf:tales/book/other").train["text"].tobytes()
    with pytest.raises(DataError, match="config 'third'"):
        loaded("bytes", "hf:tales/book/third")
    with pytest.raises(DataError, match=r"hf:tales/none: cannot be loaded \(Couldn't reach .*Hub"):
        loaded("bytes", "hf:tales/none")
