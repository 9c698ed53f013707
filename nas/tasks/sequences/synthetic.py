"""Causal tasks on synthetic tokens: recall, induction and copying.

               sequence                                   the model predicts
    recall     k_1 v_1 ... k_p v_p  k_σ(1) ... k_σ(p)     at each repeated key: its value
    induction  k_a v_a k_b v_b k_a v_a ...                at each key seen before: its value
    copying    . . x . y . . z ...  | | |                 at the marks |: x, y, z in this order

Here k is a key, v is a value, σ is a permutation and "." is noise. Recall is multi-query
associative recall (MQAR; Zoology, Arora et al. 2023, arXiv 2312.04927). Induction and copying are
in-context recall and selective copying (MAD, Poli et al. 2024, arXiv 2403.17844). Values are
random, so a model can predict them only if it looks up earlier tokens by content or by order.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from nas.tasks.base import IGNORE_INDEX, TASKS, Data, MakeAttention
from nas.tasks.sequences.task import SequenceTask, content_digest

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    Columns = dict[str, NDArray[np.int64]]


class Layout(NamedTuple):
    """The sizes of the sequences of a synthetic task."""

    num_tokens: int  # size of the vocabulary
    num_answers: int  # number of classes
    length: int  # number of tokens in a sequence
    answered: slice = slice(None)  # positions of the logits


class SyntheticTask(SequenceTask):
    """A task on generated sequences: predict the answers at some positions of each sequence.

    ``train_examples`` is the number of training sequences in an epoch; every epoch has new ones.
    ``token_shift`` says whether the model adds the previous token's embedding to each token.
    """

    data_kinds: ClassVar[Mapping[str, str]] = {"synthetic": ""}
    is_causal: ClassVar[bool] = True
    token_shift: ClassVar[bool] = False

    data: str = "synthetic"
    train_examples: int = Field(default=1800, ge=1)
    validation_examples: int = Field(default=512, ge=1)
    curve_examples: int = Field(default=128, ge=1)

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """The sizes of the sequences."""

    @abstractmethod
    def draw(self, count: int, rng: np.random.Generator) -> Columns:
        """Return ``count`` random sequences: ``tokens`` (count, length), ``targets`` (count, m).

        m is the number of positions in ``Layout.answered``.
        """

    @property
    def length(self) -> int:
        return self.layout.length

    def num_classes(self, data: Data) -> int:
        return self.layout.num_answers

    def load(self) -> Data:
        rngs = np.random.default_rng(self.data_seed).spawn(2)
        validation = self.draw(self.validation_examples, rngs[0])
        train = self.draw(self.epochs * self.train_examples, rngs[1])
        return Data(self.data, train, validation, content_digest("", train, validation))

    def epoch_size(self, data: Data) -> int:
        return data.count("train") // self.epochs

    def order(self, data: Data, epoch: int, rng: torch.Generator) -> Tensor:
        return (epoch - 1) * self.epoch_size(data) + super().order(data, epoch, rng)

    def build_model(self, data: Data, attention: MakeAttention, seed: int) -> nn.Module:
        from nas.tasks.sequences.model import TokenModel

        num_tokens, num_answers, _, read = self.layout
        arguments = self, attention, seed, num_tokens, num_answers
        return TokenModel(*arguments, read=read, token_shift=self.token_shift)


@TASKS.register("recall")
class RecallTask(SyntheticTask):
    """The task recall: predict each key's value when the keys come again after all pairs.

    The vocabulary has ``num_keys`` keys, then ``num_values`` values.
    """

    kind: ClassVar[str] = "recall"
    targets_name: ClassVar[str] = "queried keys' values"
    token_shift: ClassVar[bool] = True

    num_keys: int = Field(default=64, ge=2, le=100_000)
    num_values: int = Field(default=16, ge=2, le=100_000)
    pairs: int = Field(default=16, ge=2, le=10_000)

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
        num_tokens, answered = self.num_keys + self.num_values, slice(2 * self.pairs, None)
        return Layout(num_tokens, self.num_values, 3 * self.pairs, answered)

    def draw(self, count: int, rng: np.random.Generator) -> Columns:
        shape = count, self.pairs
        keys = np.stack([rng.permutation(self.num_keys)[: self.pairs] for _ in range(count)])
        values = rng.integers(0, self.num_values, shape)
        order = np.stack([rng.permutation(self.pairs) for _ in range(count)])
        shown = np.stack([keys, self.num_keys + values], axis=2).reshape(count, -1)
        queries = np.take_along_axis(keys, order, axis=1)
        tokens = np.concatenate([shown, queries], axis=1)
        return {"tokens": tokens, "targets": np.take_along_axis(values, order, axis=1)}


@TASKS.register("induction")
class InductionTask(SyntheticTask):
    """The task induction: keys repeat at random; predict the value of a key that came before.

    The vocabulary is as in recall. Targets are ``IGNORE_INDEX`` except at keys that came before.
    """

    kind: ClassVar[str] = "induction"
    targets_name: ClassVar[str] = "values of keys that were seen before"

    num_keys: int = Field(default=8, ge=1, le=100_000)
    num_values: int = Field(default=8, ge=2, le=100_000)
    pairs: int = Field(default=16, ge=2, le=10_000)

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
        return Layout(self.num_keys + self.num_values, self.num_values, 2 * self.pairs)

    def draw(self, count: int, rng: np.random.Generator) -> Columns:
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
    """The task copying: repeat in order the ``symbols`` that stand among ``noise`` tokens.

    The vocabulary has ``num_symbols`` symbols, the noise token, and the mark that asks for one.
    """

    kind: ClassVar[str] = "copying"
    targets_name: ClassVar[str] = "tokens to be copied"

    num_symbols: int = Field(default=16, ge=2, le=100_000)
    symbols: int = Field(default=8, ge=1, le=10_000)
    noise: int = Field(default=32, ge=0, le=10_000)

    @property
    def layout(self) -> Layout:
        shown = self.symbols + self.noise
        answered = slice(shown, None)
        return Layout(self.num_symbols + 2, self.num_symbols, shown + self.symbols, answered)

    def draw(self, count: int, rng: np.random.Generator) -> Columns:
        shown = self.symbols + self.noise
        places = np.stack([rng.permutation(shown)[: self.symbols] for _ in range(count)])
        symbols = rng.integers(0, self.num_symbols, (count, self.symbols))
        tokens = np.full((count, self.length), self.num_symbols)
        tokens[:, shown:] = self.num_symbols + 1
        np.put_along_axis(tokens, np.sort(places, axis=1), symbols, axis=1)
        return {"tokens": tokens, "targets": symbols}
