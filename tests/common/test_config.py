from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from nas.common.config import (
    Frozen,
    find_named,
    named_files,
    near,
    parse_model,
    read_document,
    read_model,
)
from nas.common.errors import ConfigError, ViolationError
from nas.common.text import MAX_MESSAGE, printable

if TYPE_CHECKING:
    from pathlib import Path


class Inner(Frozen):
    count: int


class Outer(Frozen):
    name: str
    inner: Inner = Inner(count=1)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.yaml", b"", ["empty"]),
        ("a.yaml", b" \n\n", ["empty"]),
        ("a.json", b"\x00\x01\xff", ["binary"]),
        ("a.yaml", b"a: \x00", ["binary"]),
        ("a.json", b"{,}", ["line 1", "not JSON"]),
        ("a.yaml", b"a: [1\nb: 2", ["line 2", "not YAML"]),
        ("a.json", b"[" * 100_000, ["nested too deep"]),
        ("a.yaml", b"[" * 100_000, ["nested too deep"]),
        ("a.json", b"[" * 100_000 + b"]" * 100_000, ["nested too deep"]),
        ("a.json", b'{"a": 1, "a": 2}', ["'a'", "twice"]),
        ("a.yaml", b"a: 1\na: 2", ["'a'", "twice"]),
        ("a.yaml", b"a: &x [1]\nb: *x", ["aliases"]),
        ("a.yaml", b"a: !!python/object/apply:os.system [echo]", ["not YAML"]),
        ("a.yaml", b"a: !!set {x, y}", ["tag"]),
        ("a.yaml", b"a: !!bool maybe", ["tag"]),
        ("a.yaml", b"a: 0xff", ["0xff", "no number"]),
        ("a.yaml", b"a: 1" + b"0" * 5000, ["digits"]),
        ("a.yaml", b"- a\n" * 200_000, ["bytes"]),
        ("a.json", b'{"a": NaN}', ["NaN"]),
        ("a.json", b'{"a": 1' + b"0" * 6000 + b"}", ["digits"]),
        ("a.json", b'{"a": "\xff"}', ["binary"]),
    ],
)
def test_what_cannot_be_read_gives_one_sentence(
    tmp_path: Path, name: str, content: bytes, words: list[str]
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_document(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    for word in words:
        assert word in message


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        read_document(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="folder"):
        read_document(tmp_path)


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match="no regular file"):
        read_document(pipe)


def test_dates_and_fractions_stay_text(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: 2025-11-20\nb: 1/2\nc: [yes, 1.5]\n")
    assert read_document(path) == {"a": "2025-11-20", "b": "1/2", "c": [True, 1.5]}


def test_a_field_is_named_with_what_was_found_and_expected(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("name: x\ninner: {count: many}\n")
    with pytest.raises(ConfigError, match=r"inner\.count: found str 'many'; .*integer"):
        read_model(path, Outer)


def test_an_unknown_key_gets_the_near_name() -> None:
    with pytest.raises(ConfigError, match="did you mean 'inner'"):
        parse_model({"name": "x", "iner": {}}, Outer, "here")
    with pytest.raises(ConfigError, match="did you mean 'count'"):
        parse_model({"name": "x", "inner": {"cout": 1}}, Outer, "here")


def test_a_missing_key_is_named() -> None:
    with pytest.raises(ConfigError, match="'name' is missing"):
        parse_model({}, Outer, "here")


def test_a_name_is_looked_up_as_path_then_here_then_packaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_named("quickstart", "search_spaces").name == "quickstart.yaml"
    (tmp_path / "search_spaces").mkdir()
    mine = tmp_path / "search_spaces" / "quickstart.yaml"
    mine.write_text("name: mine")
    assert find_named("quickstart", "search_spaces").resolve() == mine
    assert find_named("quickstart.yaml", "search_spaces").resolve() == mine
    assert find_named(str(mine), "search_spaces") == mine
    assert "attention_v2" in named_files("search_spaces")
    with pytest.raises(ConfigError, match="did you mean 'quickstart'"):
        find_named("quikstart", "search_spaces")


def test_a_word_of_any_length_is_compared_in_no_time() -> None:
    assert near("softmaxx", ["softmax"]) == " (did you mean 'softmax'?)"
    assert near("softmax" * 20, ["softmax" * 20 + "x"]) == ""


def test_messages_of_errors_are_printable_and_short() -> None:
    error = ConfigError("the key '\x1b]0;x\x07\u202e' " + "x" * 10_000_000)
    assert printable(str(error)) == str(error)
    assert len(str(error)) <= MAX_MESSAGE
    assert str(ViolationError("\x1b")) == "\\u001b"
