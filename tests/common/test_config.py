"""Documents that can be read, and the errors for all others."""

from __future__ import annotations

from pathlib import Path

import pytest

from nas.common.config import Frozen, find_named, named_files, parse_model, read_document
from nas.common.errors import ConfigError, ViolationError
from nas.common.text import MAX_MESSAGE, printable


class Inner(Frozen):
    count: int


class Outer(Frozen):
    name: str
    inner: Inner = Inner(count=1)
    rate: float = 1.0


@pytest.mark.parametrize(
    ("name", "content", "fact"),
    [
        ("a.yaml", b" \n\n", "empty"),
        ("a.json", b"\x00\x01\xff", "binary"),
        ("a.yaml", b"a: \x00", "not YAML"),
        ("a.json", b"{,}", "line 1, column 2: not JSON"),
        ("a.yaml", b"a: [1\nb: 2", "line 2, column 2: not YAML"),
        ("a.json", b"[" * 100_000, "nested too deep"),
        ("a.yaml", b"[" * 100_000, "nested too deep"),
        ("a.json", b'{"a": 1, "a": 2}', "'a' stands twice"),
        ("a.yaml", b"a: 1\na: 2", "'a' stands twice"),
        ("a.yaml", b"a: !!python/object/apply:os.system [echo]", "not YAML"),
        ("a.yaml", b"a: 1" + b"0" * 5000, "digits"),
        ("a.yaml", b"- a\n" * 200_000, "bytes"),
    ],
)
def test_unreadable_document_raises_one_sentence(
    tmp_path: Path, name: str, content: bytes, fact: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_document(path)
    message = str(caught.value)
    assert str(path) in message
    assert fact in message
    assert "\n" not in message


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    for name, fact in (("none.yaml", "No such file"), (".", "Is a directory")):
        with pytest.raises(ConfigError, match=fact):
            read_document(tmp_path / name)


def test_fractions_stay_text(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("b: 1/2\nc: [yes, 1.5]\n")
    assert read_document(path) == {"b": "1/2", "c": [True, 1.5]}


@pytest.mark.parametrize(
    ("data", "fact"),
    [
        ({"name": "x", "inner": {"count": "many"}}, r"inner\.count: found str 'many'; .*integer"),
        ({"name": "x", "inner": {"cout": 1}}, "did you mean 'count'"),
        ([], "found list"),
        ({"name": "x", "rate": 10**400}, "rate: found int 10+"),
        ({"name": "x", "inner": 3}, r"inner: found int 3; expected a mapping of keys to values\.$"),
    ],
)
def test_data_that_do_not_fit_a_model_are_named(data: object, fact: str) -> None:
    with pytest.raises(ConfigError, match=f"^here.*{fact}"):
        parse_model(data, Outer, "here")


def test_named_file_is_a_path_then_local_then_packaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_named("quickstart", "search_spaces").name == "quickstart.yaml"
    local = tmp_path / "search_spaces" / "quickstart.yaml"
    local.parent.mkdir()
    local.write_text("name: local")
    for name in ("quickstart", "quickstart.yaml", str(local)):
        assert find_named(name, "search_spaces").resolve() == local
    assert "attention_v2" in named_files("search_spaces")
    with pytest.raises(ConfigError, match="did you mean 'quickstart'"):
        find_named("quikstart", "search_spaces")
    with pytest.raises(ConfigError, match="is neither"):
        find_named("x" * 1000, "search_spaces")


def test_messages_of_errors_are_printable_and_short() -> None:
    error = ConfigError("the key '\x1b]0;x\x07\u202e' " + "x" * 10_000_000)
    assert printable(str(error)) == str(error)
    assert len(str(error)) <= MAX_MESSAGE
    assert str(ViolationError("\x1b")) == "\\u001b"
