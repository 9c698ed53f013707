"""Texts: read from files, or made from a seed where there is neither a file nor a network.

Made texts are little stories. People own things and are in places; what is asked at the end of a
story was said in it, so a model gains by looking back. Made reviews praise and blame; each is of
the class that it does more often, and "not" turns a word around.
"""

from __future__ import annotations

import os.path
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from nas.common.config import near
from nas.common.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

PEOPLE: Final = (
    "Ada", "Bruno", "Cleo", "Dag", "Edda", "Flor", "Gita", "Hugo", "Ines", "Jo", "Kaya", "Liv",
    "Milo", "Nora", "Otis", "Pia", "Quin", "Runa", "Sven", "Tove", "Uma", "Vito", "Wanda", "Yuri",
)  # fmt: skip
THINGS: Final = (
    "apple", "book", "candle", "drum", "egg", "feather", "glove", "hammer", "key", "lamp",
    "mirror", "needle", "pearl", "ring", "spoon", "ticket",
)  # fmt: skip
COLOURS: Final = ("black", "blue", "brown", "green", "grey", "red", "white", "yellow")
PLACES: Final = ("barn", "cellar", "garden", "harbour", "kitchen", "library", "market", "tower")
GOOD: Final = ("bright", "charming", "clever", "funny", "graceful", "moving", "rich", "splendid")
BAD: Final = ("bland", "clumsy", "dull", "flat", "hollow", "messy", "tedious", "weak")
PARTS: Final = ("cast", "dialogue", "ending", "music", "opening", "plot", "setting", "story")
VERBS: Final = ("is", "was", "seemed", "felt")


def checked_spec(value: str, kinds: Sequence[str]) -> str:
    """``data`` as it is kept: ``made``, or one of the other kinds with an absolute path.

    A run that is resumed from another folder must find the same text; a path from the home folder
    stays one, so that it also holds on another machine. ``hf:NAME`` is no path unless it begins
    like one.

    Raises:
        ValueError: it is neither.
    """
    kind, colon, path = value.partition(":")
    if kind not in kinds or bool(path) == (kind == "made") or (colon and not path):
        behind = {"made": "", "hf": ":NAME"}
        wanted = " or ".join(k + behind.get(k, ":PATH") for k in kinds)
        hint = "" if kind in kinds else near(kind, kinds)
        raise ValueError(f"found {value!r}{hint}; expected {wanted}")
    is_kept = not path or path.startswith("~") or (kind == "hf" and path[0] not in "./")
    return value if is_kept else f"{kind}:{os.path.abspath(path)}"


def expanded(path: str) -> Path:
    """A path with its ~ resolved.

    Raises:
        DataError: there is no such home.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise DataError(f"{path}: there is no such user or home folder.") from None


def read_bytes(path: str) -> bytes:
    """A file as it is.

    Raises:
        DataError: it cannot be read.
    """
    found = expanded(path)
    try:
        if not found.is_file():
            raise OSError("a folder" if found.is_dir() else "there is no such file")
        return found.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(f"{found}: cannot be read ({reason}); expected a text file.") from None


def made_story(seed: int, size: int) -> bytes:
    """Stories of so many bytes in all."""
    rng, parts, length = np.random.default_rng(seed), [], 0
    while length < size:
        parts.append(_story(rng))
        length += len(parts[-1])
    return "".join(parts).encode()[:size]


def made_reviews(seed: int, count: int) -> list[tuple[str, int]]:
    """Reviews with their classes, 1 for praise; half of each."""
    rng = np.random.default_rng(seed)
    return [(_review(rng, bool(number % 2)), number % 2) for number in range(count)]


def _story(rng: np.random.Generator) -> str:
    people = _some(rng, PEOPLE, 3)
    owned = [f"{_one(rng, COLOURS)} {_one(rng, THINGS)}" for _ in people]
    places = _some(rng, PLACES, 3)
    told = [f"{who} has a {what}." for who, what in zip(people, owned, strict=True)]
    told += [f"{who} is in the {where}." for who, where in zip(people, places, strict=True)]
    order = rng.permutation(len(told))
    asked = [f"What has {people[0]}? A {owned[0]}.", f"Where is {people[1]}? In the {places[1]}."]
    return " ".join([told[i] for i in order] + asked) + "\n"


def _review(rng: np.random.Generator, is_good: bool) -> str:
    count = int(rng.integers(5, 25))
    agrees = rng.random(count) < 0.3
    agrees[: count // 2 + 1] = True  # most of what it says is what it is
    rng.shuffle(agrees)
    return " ".join(_sentence(rng, bool(one) == is_good) for one in agrees)


def _sentence(rng: np.random.Generator, is_good: bool) -> str:
    is_turned = rng.random() < 0.5
    word = _one(rng, GOOD if is_good != is_turned else BAD)
    negated = "not " if is_turned else ""
    return f"the {_one(rng, PARTS)} {_one(rng, VERBS)} {negated}{word} ."


def _one(rng: np.random.Generator, words: tuple[str, ...]) -> str:
    return words[rng.integers(len(words))]


def _some(rng: np.random.Generator, words: tuple[str, ...], count: int) -> list[str]:
    return [words[i] for i in rng.permutation(len(words))[:count]]
