"""Columns: what is packed is what a reader finds, read here as scripts/data.js does."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import numpy as np
import pytest

from nas.report.page.encoding import ColumnEncoder


class Reader:
    """Unpacks what ``ColumnEncoder`` encoded."""

    def __init__(self, packed: str) -> None:
        whole = gzip.decompress(base64.b64decode(packed))
        length = int.from_bytes(whole[:4], "little")
        self.header, self._body = json.loads(whole[4 : 4 + length]), whole[4 + length :]

    def column(self, about: dict[str, Any]) -> Any:
        if about["type"] == "words":
            words = self.column(about["words"])
            return [words[place] for place in self.column(about["places"])]
        if about["type"] == "pieces":
            ends = np.cumsum(self.column(about["lengths"]))
            whole = self.column(about["texts"])
            return [whole[a:b].decode() for a, b in zip([0, *ends], ends, strict=False)]
        own = self._body[about["start"] : about["start"] + about["bytes"]]
        if about["type"] == "text":
            return json.loads(own)
        if about["type"] == "bytes":
            return own
        size = int(about["type"][1])
        order = np.frombuffer(own, np.uint8).reshape(size, -1).T.tobytes()
        return np.frombuffer(order, f"<{about['type']}")


def packed(make: Any) -> Any:
    columns = ColumnEncoder()
    columns.texts(["what stands before"])
    reader = Reader(columns.encode(make(columns)))
    return reader.column(reader.header)


@pytest.mark.parametrize(("type_", "digits"), [("f8", 16), ("f4", 7), ("f2", 3)])
def test_numbers_keep_their_digits(type_: str, digits: int) -> None:
    values = [0.0, -1.5, 1 / 3, 6_423_040.0, 1e-9]
    found = packed(lambda columns: columns.numbers([*values, None], type_))
    np.testing.assert_allclose(found[:-1], values, rtol=10.0**-digits)
    assert np.isnan(found[-1])


def test_texts_and_words_are_the_same() -> None:
    texts = ["</script>", "Σ·√d", "", "\ud800"]
    assert packed(lambda columns: columns.texts(texts)) == texts
    shown = [*texts[:3], "\\ud800"]
    assert packed(lambda columns: columns.pieces(texts)) == shown
    words = ["ok", "failed", "ok"]
    assert packed(lambda columns: columns.words(words)) == words


def test_nothing_can_be_packed() -> None:
    assert packed(lambda columns: columns.numbers([])).tolist() == []
    assert packed(lambda columns: columns.texts([])) == []
