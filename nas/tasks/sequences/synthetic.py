"""Causal tasks on synthetic tokens: recall, induction and copying.

    recall     k_1 v_1 ... k_p v_p  k_σ(1) ... k_σ(p)     at each later key: its value
    induction  k_a v_a k_b v_b k_a v_a ...                at each key seen before: its value
    copying    . . x . y . . z ...  | | |                 at the marks: the tokens among the noise

Recall is Zoology's multi-query associative recall (MQAR, Arora et al. 2023, arXiv 2312.04927).
Induction and copying are MAD's in-context recall and selective copying (Poli et al. 2024, arXiv
2403.17844). All are short enough to be learned in seconds. Every sequence has new values, so that a
model predicts them only if it looks up earlier tokens, by content or by order.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from nas.tasks.base import TASKS, Data, MakeAttention
from nas.tasks.classification import IGNORE_INDEX
from nas.tasks.sequences.task import SequenceTask, content_digest

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    Columns = dict[str, NDArray[np.int64]]


class Layout(NamedTuple):
    """The sizes of a synthetic task's sequences.

    Attributes:
        num_tokens: number of tokens in the vocabulary.
        num_answers: number of answers, that is, of classes.
        length: number of tokens in a sequence.
        answered: tokens with an output.
    """

    num_tokens: int
    num_answers: int
    length: int
    answered: slice = slice(None)


class SyntheticTask(SequenceTask):
    """Predict the answers at some tokens of sequences, which are generated from ``data_seed``.

    Attributes:
        train_examples: number of sequences in an epoch; every epoch has new sequences.
        token_shift: whether each token's predecessor is added to its embedding, rolled by one
            feature.
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
    def layout(self) -> Layout:
        """The sizes of the sequences."""

    @abstractmethod
    def draw(self, count: int, rng: np.random.Generator) -> Columns:
        """Draw columns ``tokens`` (count, length) and ``targets`` (count, tokens with output)."""

    @property
    def num_tokens(self) -> int:
        """The number of tokens in the vocabulary."""
        return self.layout.num_tokens

    @property
    def length(self) -> int:
        """The number of tokens of a sequence."""
        return self.layout.length

    @property
    def num_sequences(self) -> int:
        """The largest number of sequences of a split; training sequences are drawn beforehand."""
        return max(self.epochs * self.train_examples, self.validation_examples)

    def num_classes(self, data: Data) -> int:
        """Return the number of answers."""
        return self.layout.num_answers

    def load(self) -> Data:
        """Draw the training sequences of all epochs, and the validation sequences."""
        rngs = np.random.default_rng(self.data_seed).spawn(2)
        validation = self.draw(self.validation_examples, rngs[0])
        train = self.draw(self.epochs * self.train_examples, rngs[1])
        return Data(self.data, train, validation, content_digest("", train, validation))

    def epoch_size(self, data: Data) -> int:
        """Return the number of sequences of an epoch."""
        return data.count("train") // self.epochs

    def order(self, data: Data, epoch: int, rng: torch.Generator) -> Tensor:
        """Return the indices of this epoch's sequences, shuffled."""
        return (epoch - 1) * self.epoch_size(data) + super().order(data, epoch, rng)

    def build_model(self, data: Data, attention: MakeAttention, seed: int) -> nn.Module:
        """Return a causal transformer over the vocabulary."""
        from nas.tasks.sequences.model import TokenModel

        num_tokens, num_answers, _, answered = self.layout
        counts, shift = (num_tokens, num_answers), self.token_shift
        return TokenModel(self, attention, seed, *counts, read=answered, token_shift=shift)


class PairsTask(SyntheticTask):
    """A task on pairs of keys and values, whose answers are values.

    Attributes:
        num_keys: number of keys in the vocabulary; keys come before values.
        num_values: number of values in the vocabulary.
        pairs: number of pairs in a sequence.
    """

    num_keys: int = Field(default=8, ge=1, le=100_000)
    num_values: int = Field(default=8, ge=2, le=100_000)
    pairs: int = Field(default=16, ge=2, le=10_000)


@TASKS.register("recall")
class RecallTask(PairsTask):
    """Recall the value of each key after all pairs; a pair takes three tokens."""

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
    def layout(self) -> Layout:
        """Pairs, followed by each key again, at which its value is predicted."""
        num_tokens, answered = self.num_keys + self.num_values, slice(2 * self.pairs, None)
        return Layout(num_tokens, self.num_values, 3 * self.pairs, answered)

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
    """Predict the value of each repeated key; keys are drawn with repetition."""

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
    def layout(self) -> Layout:
        """Pairs of key and value, with an output at every token."""
        return Layout(self.num_keys + self.num_values, self.num_values, 2 * self.pairs)

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
        num_symbols: number of symbols in the vocabulary; the noise token and the mark follow them.
        symbols: number of symbols in a sequence.
        noise: number of noise tokens in a sequence.
    """

    kind: ClassVar[str] = "copying"
    targets_name: ClassVar[str] = "tokens to be copied"

    num_symbols: int = Field(default=16, ge=2, le=100_000)
    symbols: int = Field(default=8, ge=1, le=10_000)
    noise: int = Field(default=32, ge=0, le=10_000)

    @property
    def layout(self) -> Layout:
        """Symbols and noise, followed by a mark for each symbol, at which it is predicted."""
        shown = self.symbols + self.noise
        answered = slice(shown, None)
        return Layout(self.num_symbols + 2, self.num_symbols, shown + self.symbols, answered)

    def draw(self, count: int, rng: np.random.Generator) -> Columns:
        """Draw places and symbols of each sequence."""
        shown = self.symbols + self.noise
        places = np.stack([rng.permutation(shown)[: self.symbols] for _ in range(count)])
        symbols = rng.integers(0, self.num_symbols, (count, self.symbols))
        tokens = np.full((count, self.length), self.num_symbols)
        tokens[:, shown:] = self.num_symbols + 1
        np.put_along_axis(tokens, np.sort(places, axis=1), symbols, axis=1)
        return {"tokens": tokens, "targets": symbols}
