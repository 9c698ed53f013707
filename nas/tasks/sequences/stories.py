"""Generate synthetic texts, which need neither a file nor a network.

In a story, people own things and are in places. Questions at the end of a story ask for these
facts, so that a model gains by attending to earlier tokens. A review contains sentences of praise
and of blame, and its class is the more frequent kind. The word "not" inverts a sentence.
"""

from __future__ import annotations

from typing import Final

import numpy as np

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


def synthetic_stories(seed: int, size: int) -> bytes:
    """Return a text of ``size`` bytes that consists of stories; the last story may be cut."""
    rng, parts, length = np.random.default_rng(seed), [], 0
    while length < size:
        parts.append(_story(rng))
        length += len(parts[-1])
    return "".join(parts).encode()[:size]


def synthetic_reviews(seed: int, count: int) -> list[tuple[str, int]]:
    """Return ``count`` reviews, each with its class; the classes 0 (blame) and 1 alternate."""
    rng = np.random.default_rng(seed)
    return [(_review(rng, bool(number % 2)), number % 2) for number in range(count)]


def _story(rng: np.random.Generator) -> str:
    people = _sample(rng, PEOPLE, 3)
    owned = [f"{_choice(rng, COLOURS)} {_choice(rng, THINGS)}" for _ in people]
    places = _sample(rng, PLACES, 3)
    facts = [f"{who} has a {what}." for who, what in zip(people, owned, strict=True)]
    facts += [f"{who} is in the {where}." for who, where in zip(people, places, strict=True)]
    order = rng.permutation(len(facts))
    questions = [
        f"What has {people[0]}? A {owned[0]}.",
        f"Where is {people[1]}? In the {places[1]}.",
    ]
    return " ".join([facts[i] for i in order] + questions) + "\n"


def _review(rng: np.random.Generator, is_good: bool) -> str:
    count = int(rng.integers(5, 25))
    agrees = rng.random(count) < 0.3
    agrees[: count // 2 + 1] = True  # most sentences agree with the class
    rng.shuffle(agrees)
    return " ".join(_sentence(rng, bool(agree) == is_good) for agree in agrees)


def _sentence(rng: np.random.Generator, is_good: bool) -> str:
    is_negated = rng.random() < 0.5
    negation = "not " if is_negated else ""
    word = _choice(rng, GOOD if is_good != is_negated else BAD)
    return f"the {_choice(rng, PARTS)} {_choice(rng, VERBS)} {negation}{word} ."


def _choice(rng: np.random.Generator, words: tuple[str, ...]) -> str:
    return words[rng.integers(len(words))]


def _sample(rng: np.random.Generator, words: tuple[str, ...], count: int) -> list[str]:
    return [words[i] for i in rng.permutation(len(words))[:count]]
