"""Causal tasks on synthetic tokens: recall, induction and copying.

    recall     k_1 v_1 ... k_p v_p  k_σ(1) ... k_σ(p)     at each later key: its value
    induction  k_a v_a k_b v_b k_a v_a ...                at each key seen before: its value
    copying    . . x . y . . z ...  | | |                 at the marks: the tokens among the noise

Recall is Zoology's multi-query associative recall (MQAR, Arora et al. 2023, arXiv 2312.04927), the
others are MAD's in-context recall and selective copying (Poli et al. 2024, arXiv 2403.17844), all
short enough to be learned in seconds. Every sequence has new values, so that a model predicts them
only by looking up tokens, by content or by order.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from nas.tasks.base import TASKS, Data, Examples, MakeAttention, Side
from nas.tasks.classification import IGNORE_INDEX
from nas.tasks.sequences.task import Rows, SequenceTask

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    Columns = dict[str, NDArray[np.int64]]


class SyntheticTask(SequenceTask):
    """Predict answers at some tokens of sequences that are drawn from ``data_seed``.

    Attributes:
        train_examples: number of sequences in an epoch; every epoch has new ones.
        token_shift: add each token's predecessor to its embedding, rolled by one feature.
    """

    data_kinds: ClassVar[tuple[str, ...]] = ("synthetic",)
    is_causal: ClassVar[bool] = True
    token_shift: ClassVar[bool] = False

    data: Literal["synthetic"] = "synthetic"
    train_examples: int = Field(default=1800, ge=1)
    validation_examples: int = Field(default=512, ge=1)
    curve_examples: int = Field(default=128, ge=1)

    @property
    @abstractmethod
    def num_tokens(self) -> int:
        """Size of the vocabulary."""

    @property
    @abstractmethod
    def num_answers(self) -> int:
        """Size of the answers' vocabulary."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Tokens of a sequence."""

    @property
    def answered(self) -> slice:
        """The tokens with an output."""
        return slice(None)

    @abstractmethod
    def draw(self, count: int, rng: np.random.Generator) -> Columns:
        """Columns ``tokens`` (count, length) and ``targets``, one for each token with an output."""

    @property
    def num_sequences(self) -> int:
        """The training sequences of all epochs are drawn beforehand."""
        return max(self.epochs * self.train_examples, self.validation_examples)

    def num_classes(self, data: Data) -> int:
        """The number of answers."""
        return self.num_answers

    def load(self) -> Data:
        """Draw the training sequences of all epochs, and the validation sequences."""
        rngs = np.random.default_rng(self.data_seed).spawn(2)
        validation = self.draw(self.validation_examples, rngs[0])
        train = self.draw(self.epochs * self.train_examples, rngs[1])
        digest = hashlib.blake2b(digest_size=8)
        for column in (*train.values(), *validation.values()):
            digest.update(f"{column.shape}".encode())
            digest.update(np.ascontiguousarray(column).data)
        return Data(self.data, train, validation, digest.hexdigest())

    def examples(
        self, data: Data, side: Side, device: torch.device, dtype: torch.dtype
    ) -> Examples:
        """The sequences on a device: batches of (tokens, targets)."""
        columns = data.train if side == "train" else data.validation
        return Rows(columns["tokens"], columns["targets"], device)

    def epoch_size(self, data: Data) -> int:
        """The number of sequences of an epoch."""
        return data.count("train") // self.epochs

    def order(self, data: Data, epoch: int, rng: torch.Generator) -> Tensor:
        """The sequences of this epoch, shuffled."""
        return (epoch - 1) * self.epoch_size(data) + super().order(data, epoch, rng)

    def build_model(self, data: Data, attention: MakeAttention, seed: int) -> nn.Module:
        """A causal transformer over the vocabulary."""
        from nas.tasks.sequences.model import TokenModel

        counts = self.num_tokens, self.num_answers
        return TokenModel(
            self, attention, seed, *counts, read=self.answered, token_shift=self.token_shift
        )


class PairsTask(SyntheticTask):
    """A task of keys and values, whose answers are values.

    Attributes:
        num_keys, num_values: number of keys and of values in the vocabulary; keys come first.
        pairs: number of pairs of key and value in a sequence.
    """

    num_keys: int = Field(default=8, ge=1, le=100_000)
    num_values: int = Field(default=8, ge=2, le=100_000)
    pairs: int = Field(default=16, ge=2, le=10_000)

    @property
    def num_tokens(self) -> int:
        """Keys and values of the vocabulary."""
        return self.num_keys + self.num_values

    @property
    def num_answers(self) -> int:
        """Values."""
        return self.num_values


@TASKS.register("recall")
class RecallTask(PairsTask):
    """After all pairs, recall the value of each key: three tokens a pair."""

    kind: ClassVar[str] = "recall"
    targets_name: ClassVar[str] = "queried keys' values"
    token_shift: ClassVar[bool] = True

    num_keys: int = Field(default=64, ge=2, le=100_000)
    num_values: int = Field(default=16, ge=2, le=100_000)

    @model_validator(mode="after")
    def _keys_suffice(self) -> RecallTask:
        if self.pairs > self.num_keys:
            raise ValueError(
                f"pairs is {self.pairs}; expected at most num_keys, {self.num_keys}: "
                "the keys of a sequence are distinct"
            )
        return self

    @property
    def length(self) -> int:
        """Pairs, then each key again."""
        return 3 * self.pairs

    @property
    def answered(self) -> slice:
        """The last third."""
        return slice(2 * self.pairs, None)

    def draw(self, count: int, rng: np.random.Generator) -> Columns:
        """Draw distinct keys with values, followed by the keys in another order."""
        shape = count, self.pairs
        keys = np.stack([rng.permutation(self.num_keys)[: self.pairs] for _ in range(count)])
        values = rng.integers(0, self.num_values, shape)
        order = np.stack([rng.permutation(self.pairs) for _ in range(count)])
        shown = np.stack([keys, self.num_keys + values], axis=2).reshape(count, -1)
        queries = np.take_along_axis(keys, order, axis=1)
        tokens = np.concatenate([shown, queries], axis=1)
        return {"tokens": tokens, "targets": np.take_along_axis(values, order, axis=1)}


@TASKS.register("induction")
class InductionTask(PairsTask):
    """Predict the value of each key that is repeated; keys are drawn with repetition."""

    kind: ClassVar[str] = "induction"
    targets_name: ClassVar[str] = "values of keys that were seen before"

    @model_validator(mode="after")
    def _keys_come_again(self) -> InductionTask:
        if self.pairs <= self.num_keys:
            raise ValueError(
                f"pairs is {self.pairs}; expected more than num_keys, {self.num_keys}: "
                "some key has to come again"
            )
        return self

    @property
    def length(self) -> int:
        """Keys and values in turn."""
        return 2 * self.pairs

    def draw(self, count: int, rng: np.random.Generator) -> Columns:
        """Draw a value for each key of a sequence, then the keys."""
        keys = rng.integers(0, self.num_keys, (count, self.pairs))
        values = rng.integers(0, self.num_values, (count, self.num_keys))
        shown = np.take_along_axis(values, keys, axis=1)
        tokens = np.stack([keys, self.num_keys + shown], axis=2).reshape(count, -1)
        before = np.tril(np.ones((self.pairs, self.pairs), bool), -1)
        is_repeated = ((keys[:, :, None] == keys[:, None]) & before).any(axis=2)
        answers = np.where(is_repeated, shown, IGNORE_INDEX)
        at_values = np.full_like(answers, IGNORE_INDEX)
        targets = np.stack([answers, at_values], axis=2).reshape(count, -1)
        return {"tokens": tokens, "targets": targets}


@TASKS.register("copying")
class CopyingTask(SyntheticTask):
    """Repeat in order the symbols of a sequence of symbols and noise.

    Attributes:
        num_symbols: number of symbols in the vocabulary; noise and the mark come after them.
        symbols: number of symbols in a sequence.
        noise: number of noise tokens in a sequence.
    """

    kind: ClassVar[str] = "copying"
    targets_name: ClassVar[str] = "tokens to be copied"

    num_symbols: int = Field(default=16, ge=2, le=100_000)
    symbols: int = Field(default=8, ge=1, le=10_000)
    noise: int = Field(default=32, ge=0, le=10_000)

    @property
    def num_tokens(self) -> int:
        """Symbols, noise, and the mark at which a symbol is predicted."""
        return self.num_symbols + 2

    @property
    def num_answers(self) -> int:
        """Symbols."""
        return self.num_symbols

    @property
    def length(self) -> int:
        """Symbols, noise, and a mark for each symbol."""
        return 2 * self.symbols + self.noise

    @property
    def answered(self) -> slice:
        """The marks."""
        return slice(self.symbols + self.noise, None)

    def draw(self, count: int, rng: np.random.Generator) -> Columns:
        """Draw places and symbols of each sequence."""
        shown = self.symbols + self.noise
        places = np.stack([rng.permutation(shown)[: self.symbols] for _ in range(count)])
        symbols = rng.integers(0, self.num_symbols, (count, self.symbols))
        tokens = np.full((count, self.length), self.num_symbols)
        tokens[:, self.answered] = self.num_symbols + 1
        np.put_along_axis(tokens, np.sort(places, axis=1), symbols, axis=1)
        return {"tokens": tokens, "targets": symbols}
