"""Data for a page: columns of numbers and texts, packed as base64 of gzip.

What is packed is four bytes (the length of the header, little-endian), the header as JSON, and the
columns' bytes. A column in the header says its type and where its bytes lie. Numbers have their
bytes sorted by place, all first bytes, then all second ones: gzip finds more in that. A page
decodes it with ``DecompressionStream`` (scripts/data.js).
"""

from __future__ import annotations

import base64
import gzip
import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# f2 is f4 with 11 bits of its fraction, which a curve is drawn from: four digits.
TYPES: Final = {"f8": "<f8", "f4": "<f4", "f2": "<f4", "i4": "<i4"}
KEPT: Final = np.uint32(0xFFFFF000)
LEVEL: Final = 6


class Columns:
    """Collects columns; each call gives what the header says of one."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._end = 0

    def numbers(self, values: Iterable[float | None], type_: str = "f8") -> dict[str, Any]:
        """A column of numbers; None is not a number. ``f4`` keeps seven digits, ``f2`` four."""
        array = np.asarray([*values], TYPES[type_])
        if type_ == "f2":
            array = (array.view(np.uint32) & KEPT).view(np.float32)
        sorted_ = array.view(np.uint8).reshape(-1, array.itemsize).T.tobytes()
        return self._added(sorted_, type="f4" if type_ == "f2" else type_, length=len(array))

    def texts(self, values: Iterable[str]) -> dict[str, Any]:
        """A column of texts that differ."""
        return self._added(_json(list(values)), type="text")

    def pieces(self, values: Iterable[str]) -> dict[str, Any]:
        """A column of long texts, each read when it is asked for."""
        found = [value.encode("utf-8", "backslashreplace") for value in values]
        lengths = self.numbers(map(len, found), "i4")
        return {
            "type": "pieces",
            "lengths": lengths,
            "texts": self._added(b"".join(found), type="bytes"),
        }

    def words(self, values: Sequence[str]) -> dict[str, Any]:
        """A column of few words: places in their list."""
        known = {word: place for place, word in enumerate(dict.fromkeys(values))}
        places = self.numbers((known[value] for value in values), "i4")
        return {"type": "words", "words": list(known), "places": places}

    def lists(self, values: Sequence[Sequence[float]], type_: str = "f4") -> dict[str, Any]:
        """A column of lists of numbers: how long each is, and all of them in a row."""
        lengths = self.numbers(map(len, values), "i4")
        return {
            "type": "lists",
            "lengths": lengths,
            "values": self.numbers((number for own in values for number in own), type_),
        }

    def packed(self, header: Any) -> str:
        """Everything, as base64."""
        head = _json(header)
        body = b"".join([len(head).to_bytes(4, "little"), head, *self._parts])
        return base64.b64encode(gzip.compress(body, LEVEL, mtime=0)).decode()

    def _added(self, content: bytes, **about: Any) -> dict[str, Any]:
        start, self._end = self._end, self._end + len(content)
        self._parts.append(content)
        return {**about, "start": start, "bytes": len(content)}


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(
        "utf-8", "backslashreplace"
    )
