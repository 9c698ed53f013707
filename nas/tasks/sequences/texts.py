"""The task family ``texts``: classify texts by attention over all words of a text.

A word is a run of letters, digits and apostrophes in lower case, or a punctuation mark. The
vocabulary contains the most frequent words of the training texts. Only the first and the last words
of a long text are read. Short texts are padded at the end.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from nas.common.errors import DataError, NasWarning
from nas.common.text import plural
from nas.tasks.base import TASKS, Data, MakeAttention
from nas.tasks.files import check_classes, list_classes, read_bytes
from nas.tasks.sequences.stories import synthetic_reviews
from nas.tasks.sequences.task import SequenceTask, content_digest

if TYPE_CHECKING:
    from torch import nn

Labelled: TypeAlias = Sequence[tuple[str, int]]

WORD: Final = re.compile(r"[\w']+|[^\w\s']")
FIRST_WORD: Final = 2  # after the padding token, 0, and the token of all rare words
RARE: Final = 1
MAX_END: Final = 2**19  # characters that are read from either end of a text, to bound the time


@TASKS.register("texts")
class TextsTask(SequenceTask):
    """A task that trains a transformer to classify texts.

    Attributes:
        data: ``synthetic`` for reviews that are generated from ``data_seed``, or
            ``textfolder:PATH``, which contains the folders train/ and, optionally, test/ (or val/),
            each with a folder of .txt files for each class. Blank texts are left out.
        words: largest size of the vocabulary, including the tokens of padding and of rare words.
        length: number of words that are read from each text, half of them from either end.
        train_examples, validation_examples: numbers of texts in the two splits, which are drawn
            from the training part of the data, and reduced in proportion if it has fewer texts.
    """

    kind: ClassVar[str] = "texts"
    is_padded: ClassVar[bool] = True
    data_kinds: ClassVar[Mapping[str, str]] = {"synthetic": "", "textfolder": "PATH"}
    targets_name: ClassVar[str] = "held-out training texts"

    data: str = "synthetic"
    words: int = Field(default=8192, ge=3, le=1_000_000)
    length: int = Field(default=128, ge=2, le=65_536)
    train_examples: int = Field(default=6000, ge=2)
    validation_examples: int = Field(default=2500, ge=1)
    curve_examples: int = Field(default=500, ge=1)

    def load(self) -> Data:
        return self._load(is_tested=False)

    def load_test(self) -> Data:
        return self._load(is_tested=True)

    def _load(self, *, is_tested: bool) -> Data:
        classes, texts = self._part(is_test=False)
        order = np.random.default_rng(self.data_seed).permutation(len(texts))
        # If there are fewer texts, both sides shrink in proportion, as for images.
        total = self.train_examples + self.validation_examples
        end = min(total, len(texts))
        cut = max(1, end * self.train_examples // total)
        train_texts: Labelled = [texts[i] for i in order[:cut]]
        eval_texts: Labelled = [texts[i] for i in order[cut:end]]
        if is_tested:
            test_classes, eval_texts = self._part(is_test=True)
            check_classes(self.data, classes, test_classes)
        vocabulary = _vocabulary((_words(text) for text, _ in train_texts), self.words)
        train, validation = (
            _columns(part, vocabulary, self.length) for part in (train_texts, eval_texts)
        )
        digest = content_digest(repr(classes), train, validation)
        facts = {"classes": classes, "words": FIRST_WORD + len(vocabulary)}
        return Data(self.data, train, validation, digest, facts)

    def _part(self, *, is_test: bool) -> tuple[tuple[str, ...], Labelled]:
        """Return the class names, and the texts of one part with their class numbers."""
        kind, _, path = self.data.partition(":")
        if kind == "synthetic":
            count = self.train_examples + self.validation_examples
            return ("blame", "praise"), synthetic_reviews(2 * self.data_seed + is_test, count)
        classes, files = list_classes(Path(path).expanduser(), (".txt",), is_test=is_test)
        texts = [
            (read_bytes(file).decode("utf-8", errors="replace"), label)
            for label, of_class in enumerate(files)
            for file in of_class
        ]
        written = [(text, label) for text, label in texts if text.strip()]
        if blank := {*classes} - {classes[label] for _, label in written}:
            raise DataError(f"{self.data}: all texts of {', '.join(sorted(blank))} are blank.")
        counts = {
            "are blank, and left out": len(texts) - len(written),
            "have U+FFFD in place of what is not UTF-8": sum("\ufffd" in text for text, _ in texts),
        }
        for about, count in counts.items():
            if count:
                about = f"{count:,} of {plural(len(texts), 'text')} {about}"
                warnings.warn(f"{self.data}: {about}.", NasWarning, stacklevel=2)
        return classes, written

    def build_model(self, data: Data, attention: MakeAttention, seed: int) -> nn.Module:
        from nas.tasks.sequences.model import TextModel

        return TextModel(self, attention, seed, data.facts["words"], self.num_classes(data))


def _words(text: str) -> list[str]:
    if len(text) > 2 * MAX_END + 1:
        text = f"{text[:MAX_END]} {text[-MAX_END:]}"
    return WORD.findall(text.lower())


def _vocabulary(texts: Iterable[Sequence[str]], size: int) -> dict[str, int]:
    """Return the tokens of the most frequent words, by word; ties are in alphabetical order."""
    counts = Counter(word for text in texts for word in text)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))[: size - FIRST_WORD]
    return {word: FIRST_WORD + i for i, word in enumerate(ranked)}


def _columns(
    texts: Labelled, vocabulary: Mapping[str, int], length: int
) -> dict[str, NDArray[np.integer]]:
    rows = [_row(_words(text), vocabulary, length) for text, _ in texts]
    return {"tokens": np.stack(rows), "labels": np.array([label for _, label in texts])}


def _row(words: Sequence[str], vocabulary: Mapping[str, int], length: int) -> NDArray[np.int32]:
    """Return the tokens of a text, shortened or padded to shape (length,)."""
    if len(words) > length:
        last = length // 2
        words = [*words[: length - last], *words[-last:]]
    row = np.zeros(length, np.int32)
    tokens = [vocabulary.get(word, RARE) for word in words]
    row[: len(tokens)] = tokens
    return row
