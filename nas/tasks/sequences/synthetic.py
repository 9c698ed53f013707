"""Causal tasks on tokens that are drawn from a seed: recall, induction and copying.

    recall     k_1 v_1 ... k_p v_p  k_σ(1) ... k_σ(p)     at each later key: its value
    induction  k_a v_a k_b v_b k_a v_a ...                at each key seen before: its value
    copying    . . x . y . . z ...  | | |                 at the marks: the tokens among the noise

Recall is Zoology's multi-query associative recall (MQAR, Arora et al. 2023, arXiv 2312.04927), the
others are MAD's in-context recall and selective copying (Poli et al. 2024, arXiv 2403.17844), all
made short enough to be learned in seconds. Values are drawn anew for every sequence: nothing but
looking tokens up, by content or by order, tells them.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from nas.genome import ModelSizes
from nas.tasks.base import TASKS, Data
from nas.tasks.classification import IGNORE_INDEX
from nas.tasks.sequences.task import SequenceTask

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from nas.tasks.base import Examples, MakeAttention, Side

    Columns = dict[str, NDArray[np.int64]]


class SyntheticTask(SequenceTask):
    """Answer at some tokens of sequences that are made from ``data_seed``.

    Attributes:
        train_examples: sequences of an epoch; every epoch has fresh ones.
        token_shift: each token's embedding has its predecessor's added, rolled by one feature.
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
        """How many answers there are to choose from."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Tokens of a sequence."""

    @property
    def answered(self) -> slice:
        """The tokens at which anything is ever asked."""
        return slice(None)

    @abstractmethod
    def draw(self, count: int, rng: np.random.Generator) -> Columns:
        """``tokens`` (count, length) and ``targets``, one at each token that is answered."""

    @property
    def num_sequences(self) -> int:
        """Those of all epochs are drawn beforehand."""
        return max(self.epochs * self.train_examples, self.validation_examples)

    @property
    def sizes(self) -> ModelSizes:
        """Model width, heads, layers and tokens."""
        return ModelSizes(self.width, self.heads, self.depth, self.length)

    def num_classes(self, data: Data) -> int:
        """Of answers."""
        return self.num_answers

    def load(self) -> Data:
        """Draw the sequences of all epochs, and those that judge."""
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
        from nas.tasks.sequences.examples import Rows

        columns = data.train if side == "train" else data.validation
        return Rows(columns["tokens"], columns["targets"], device)

    def epoch_size(self, data: Data) -> int:
        """Sequences of an epoch."""
        return data.count("train") // self.epochs

    def order(self, data: Data, epoch: int, rng: torch.Generator) -> Tensor:
        """The epoch's own sequences, shuffled."""
        return (epoch - 1) * self.epoch_size(data) + super().order(data, epoch, rng)

    def build_model(self, data: Data, attention: MakeAttention, seed: int) -> nn.Module:
        """A causal transformer over the vocabulary."""
        from nas.tasks.sequences.model import TokenModel

        return TokenModel(
            self,
            attention,
            seed,
            self.num_tokens,
            self.num_answers,
            read=self.answered,
            token_shift=self.token_shift,
        )


class PairsTask(SyntheticTask):
    """Keys with values; a value is what is asked for.

    Attributes:
        num_keys, num_values: of the vocabulary; keys come first.
        pairs: of key and value in a sequence.
    """

    num_keys: int = Field(default=8, ge=1, le=100_000)
    num_values: int = Field(default=8, ge=2, le=100_000)
    pairs: int = Field(default=16, ge=2, le=10_000)

    @property
    def num_tokens(self) -> int:
        """Keys and values."""
        return self.num_keys + self.num_values

    @property
    def num_answers(self) -> int:
        """Values."""
        return self.num_values


@TASKS.register("recall")
class RecallTask(PairsTask):
    """Recall the value that stood behind a key, all keys having been shown: three tokens a pair."""

    kind: ClassVar[str] = "recall"
    judged_things: ClassVar[str] = "queried keys' values"
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
        """Pairs, and each key once more."""
        return 3 * self.pairs

    @property
    def answered(self) -> slice:
        """The last third."""
        return slice(2 * self.pairs, None)

    def draw(self, count: int, rng: np.random.Generator) -> Columns:
        """Distinct keys with values, then the keys in another order."""
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
    """Go on as before: wherever a key comes again, its value follows again.

    Keys are drawn with repetition.
    """

    kind: ClassVar[str] = "induction"
    judged_things: ClassVar[str] = "values of keys that were seen before"

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
        """Keys and values by turns."""
        return 2 * self.pairs

    def draw(self, count: int, rng: np.random.Generator) -> Columns:
        """Each sequence has a value for each key, drawn once."""
        keys = rng.integers(0, self.num_keys, (count, self.pairs))
        values = rng.integers(0, self.num_values, (count, self.num_keys))
        own = np.take_along_axis(values, keys, axis=1)
        tokens = np.stack([keys, self.num_keys + own], axis=2).reshape(count, -1)
        before = np.tril(np.ones((self.pairs, self.pairs), bool), -1)
        is_known = ((keys[:, :, None] == keys[:, None]) & before).any(axis=2)
        asked = np.where(is_known, own, IGNORE_INDEX)
        targets = np.stack([asked, np.full_like(asked, IGNORE_INDEX)], axis=2).reshape(count, -1)
        return {"tokens": tokens, "targets": targets}


@TASKS.register("copying")
class CopyingTask(SyntheticTask):
    """Say again, in order, the tokens that stood somewhere among noise.

    Attributes:
        num_symbols: that a token may be; noise and the mark come behind them in the vocabulary.
        symbols: to copy in a sequence.
        noise: tokens among which they stand.
    """

    kind: ClassVar[str] = "copying"
    judged_things: ClassVar[str] = "tokens to be copied"

    num_symbols: int = Field(default=16, ge=2, le=100_000)
    symbols: int = Field(default=8, ge=1, le=10_000)
    noise: int = Field(default=32, ge=0, le=10_000)

    @property
    def num_tokens(self) -> int:
        """Symbols, noise, and the mark at which a symbol is asked for."""
        return self.num_symbols + 2

    @property
    def num_answers(self) -> int:
        """Symbols."""
        return self.num_symbols

    @property
    def length(self) -> int:
        """Symbols among noise, and a mark for each."""
        return 2 * self.symbols + self.noise

    @property
    def answered(self) -> slice:
        """The marks."""
        return slice(self.symbols + self.noise, None)

    def draw(self, count: int, rng: np.random.Generator) -> Columns:
        """Places and symbols anew for each sequence."""
        shown = self.symbols + self.noise
        places = np.stack([rng.permutation(shown)[: self.symbols] for _ in range(count)])
        symbols = rng.integers(0, self.num_symbols, (count, self.symbols))
        tokens = np.full((count, self.length), self.num_symbols)
        tokens[:, self.answered] = self.num_symbols + 1
        np.put_along_axis(tokens, np.sort(places, axis=1), symbols, axis=1)
        return {"tokens": tokens, "targets": symbols}
