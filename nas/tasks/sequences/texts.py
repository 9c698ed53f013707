"""The task family ``texts``: tell classes of texts apart, reading all of a text at once.

Words are lower-case runs of letters, digits and apostrophes, and signs; the commonest of the
training texts are the vocabulary. Of a text that is too long its first and its last words are
read. Shorter ones are padded at the end, and padding is never read: attention is given a mask, the
mean behind the layers leaves it out.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
from pydantic import Field, field_validator

from nas.common.errors import DataError
from nas.genome import ModelSizes
from nas.tasks.base import TASKS, Data
from nas.tasks.names import check_name
from nas.tasks.sequences.corpus import checked_spec, expanded, made_reviews, read_bytes
from nas.tasks.sequences.hugging_face import read_classes
from nas.tasks.sequences.task import SequenceTask

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import torch
    from numpy.typing import NDArray
    from torch import nn

    from nas.tasks.base import Examples, MakeAttention, Side

    Labelled = Sequence[tuple[str, int]]

WORD: Final = re.compile(r"[\w']+|[^\w\s']")
FIRST_WORD: Final = 2  # behind what stands for none and what stands for all rare words
RARE: Final = 1
TRAIN: Final = ("train",)
TEST: Final = ("test", "val", "valid")


@TASKS.register("texts")
class TextsTask(SequenceTask):
    """Tell classes of texts apart.

    Attributes:
        data: ``made``, reviews from a seed; ``textfolder:PATH``: train/ and test/ (or val/), with
            a folder of .txt files for each class; or ``hf:NAME`` (see ``hugging_face``).
        words: vocabulary, what stands for padding and for rare words included.
        length: words that are read of a text: its first half, and its last.
        train_examples, validation_examples: texts drawn from the training part, without regard to
            class; where there are fewer, both shrink in proportion.
    """

    kind: ClassVar[str] = "texts"
    data_kinds: ClassVar[tuple[str, ...]] = ("made", "textfolder", "hf")
    judged_things: ClassVar[str] = "held-out training texts"

    data: str = "made"
    words: int = Field(default=8192, ge=3, le=1_000_000)
    length: int = Field(default=128, ge=2, le=65_536)
    train_examples: int = Field(default=6000, ge=2)
    validation_examples: int = Field(default=2500, ge=1)
    curve_examples: int = Field(default=500, ge=1)

    @field_validator("data")
    @classmethod
    def _data_exists(cls, value: str) -> str:
        return checked_spec(value, cls.data_kinds)

    @property
    def sizes(self) -> ModelSizes:
        """Model width, heads, layers and tokens."""
        return ModelSizes(self.width, self.heads, self.depth, self.length)

    @property
    def num_tokens(self) -> int:
        """Size of the vocabulary, where the texts have as many words."""
        return self.words

    def num_classes(self, data: Data) -> int:
        """Of texts."""
        return len(data.facts["classes"])

    def load(self) -> Data:
        """Training and validation texts, both from the data's training part."""
        return self._load(is_tested=False)

    def load_test(self) -> Data:
        """The same training texts, and the whole test part."""
        return self._load(is_tested=True)

    def _load(self, *, is_tested: bool) -> Data:
        classes, texts = self._part(TRAIN)
        order = np.random.default_rng(self.data_seed).permutation(len(texts))
        # Where there are fewer, both sides shrink in proportion, as images do.
        total = self.train_examples + self.validation_examples
        end = min(total, len(texts))
        cut = max(1, end * self.train_examples // total)
        own: Labelled = [texts[i] for i in order[:cut]]
        judged: Labelled = [texts[i] for i in order[cut:end]]
        if is_tested:
            tested, judged = self._part(TEST)
            if tested != classes:
                raise DataError(f"{self.data}: its test part has other classes than its training.")
        vocabulary = _vocabulary((_words(text) for text, _ in own), self.words)
        train, held_out = (self._columns(some, vocabulary) for some in (own, judged))
        digest = hashlib.blake2b(repr(classes).encode(), digest_size=8)
        for column in (*train.values(), *held_out.values()):
            digest.update(f"{column.shape}".encode())
            digest.update(column.data)
        facts = {"classes": classes, "words": FIRST_WORD + len(vocabulary)}
        return Data(self.data, train, held_out, digest.hexdigest(), facts)

    def _columns(
        self, texts: Labelled, vocabulary: Mapping[str, int]
    ) -> dict[str, NDArray[np.integer]]:
        rows = [_row(_words(text), vocabulary, self.length) for text, _ in texts]
        return {"tokens": np.stack(rows), "labels": np.array([label for _, label in texts])}

    def _part(self, names: tuple[str, ...]) -> tuple[tuple[str, ...], Labelled]:
        kind, _, path = self.data.partition(":")
        if kind == "textfolder":
            return read_folder(expanded(path), names)
        is_test = names is TEST
        if kind == "hf":
            return read_classes(self.data, is_test=is_test)
        count = self.train_examples + self.validation_examples
        return ("blame", "praise"), made_reviews(2 * self.data_seed + is_test, count)

    def examples(
        self, data: Data, side: Side, device: torch.device, dtype: torch.dtype
    ) -> Examples:
        """The texts on a device: batches of (words, labels)."""
        from nas.tasks.sequences.examples import Rows

        columns = data.train if side == "train" else data.validation
        return Rows(columns["tokens"], columns["labels"], device)

    def build_model(self, data: Data, attention: MakeAttention, seed: int) -> nn.Module:
        """An encoder over words, and a mean."""
        from nas.tasks.sequences.model import TextModel

        return TextModel(self, attention, seed, data.facts["words"], self.num_classes(data))


def read_folder(root: Path, part: Sequence[str]) -> tuple[tuple[str, ...], Labelled]:
    """Classes, and all texts of a part with their class; both in the order of names.

    Raises:
        DataError: the folder is missing, or holds fewer than two classes of texts.
    """
    found = next((root / name for name in part if (root / name).is_dir()), None)
    layout = "expected train/ and test/ with a folder of .txt files for each class"
    if found is None:
        raise DataError(f"{root}: holds no folder {' or '.join(part)}; {layout}.")
    try:
        folders = sorted(path for path in found.iterdir() if path.is_dir())
        paths = [sorted(folder.glob("*.txt")) for folder in folders]
        for path in (*folders, *(path for own in paths for path in own)):
            check_name(path.parent, path.name)
        read = [
            (read_bytes(str(path)).decode("utf-8", errors="replace"), label)
            for label, own in enumerate(paths)
            for path in own
        ]
    except OSError as error:
        raise DataError(f"{found}: a text cannot be read ({error.strerror}).") from None
    if len(paths) < 2 or not all(paths):
        raise DataError(f"{found}: expected at least two folders, each with .txt files; {layout}.")
    return tuple(path.name for path in folders), read


def _words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def _vocabulary(texts: Iterable[Sequence[str]], size: int) -> dict[str, int]:
    """The commonest words; of those that are as common the first in the alphabet."""
    counts = Counter(word for text in texts for word in text)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))[: size - FIRST_WORD]
    return {word: FIRST_WORD + i for i, word in enumerate(ranked)}


def _row(words: Sequence[str], vocabulary: Mapping[str, int], length: int) -> NDArray[np.int32]:
    """A text's words by number, padded; an empty text is one rare word."""
    if len(words) > length:
        last = length // 2
        words = [*words[: length - last], *words[-last:]]
    row = np.zeros(length, np.int32)
    numbers = [vocabulary.get(word, RARE) for word in words] or [RARE]
    row[: len(numbers)] = numbers
    return row
