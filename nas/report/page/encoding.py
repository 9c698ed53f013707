"""Encode columns of numbers and texts for a page, as base64 of gzip.

The compressed bytes are four bytes (the length of the header, little-endian), the header as JSON,
and the bytes of the columns. The header contains the type, offset and length of each column. A
column of numbers is stored as the first bytes of all numbers, then the second bytes, and so on,
which gzip compresses better. A page decodes the columns with ``DecompressionStream``
(scripts/data.js).
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    Packed = dict[str, Any]

# f2 is f4 without the last 12 bits, about three digits: enough for a curve.
TYPES: Final = {"f8": "<f8", "f4": "<f4", "f2": "<f4", "i4": "<i4"}
F2_MASK: Final = np.uint32(0xFFFFF000)
LEVEL: Final = 6


class ColumnEncoder:
    """An encoder that collects the columns of a page.

    Each method that adds a column returns a description of the column, with its type, offset and
    length, which the caller includes in the header. Columns with equal bytes are stored once.
    """

    def __init__(self) -> None:
        self._parts: dict[bytes, int] = {}
        self._end = 0

    def numbers(self, values: Iterable[float | None], type_: str = "f8") -> Packed:
        """Add a column of numbers, None as NaN, and return the column's description.

        Args:
            type_: "i4" for integers, "f8" for floats, "f4" for floats with seven digits, or "f2"
                for floats with three digits.
        """
        array = np.asarray([*values], TYPES[type_])
        if type_ == "f2":
            array = (array.view(np.uint32) & F2_MASK).view(np.float32)
        sorted_ = array.view(np.uint8).reshape(-1, array.itemsize).T.tobytes()
        return self._add(sorted_, type="f4" if type_ == "f2" else type_, length=len(array))

    def texts(self, values: Iterable[str]) -> Packed:
        """Add a column of texts, which a page decodes all at once; return its description."""
        return self._add(_json(list(values)), type="text")

    def pieces(self, values: Iterable[str]) -> Packed:
        """Add a column of long texts, which a page decodes one by one; return its description."""
        texts = [value.encode("utf-8", "backslashreplace") for value in values]
        lengths = self.numbers(map(len, texts), "i4")
        return {"type": "pieces", "lengths": lengths, "texts": self._add(b"".join(texts))}

    def words(self, values: Sequence[str]) -> Packed:
        """Add a column of texts, stored as indices of distinct texts; return its description."""
        indices = {word: index for index, word in enumerate(dict.fromkeys(values))}
        places = self.numbers(map(indices.__getitem__, values), "i4")
        return {"type": "words", "words": self.texts(indices), "places": places}

    def encode(self, header: Any) -> str:
        """Return the JSON ``header`` and all added columns, compressed, as base64."""
        head = _json(header)
        body = b"".join([len(head).to_bytes(4, "little"), head, *self._parts])
        return base64.b64encode(gzip.compress(body, LEVEL, mtime=0)).decode()

    def _add(self, content: bytes, **about: Any) -> Packed:
        start = self._parts.setdefault(content, self._end)
        if start == self._end:
            self._end += len(content)
        return {"type": "bytes", **about, "start": start, "bytes": len(content)}


def _json(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")
