"""The task family ``bytes``: predict the next byte of a text, which may be any file.

Models are trained on windows of the first nine tenths of the text, and evaluated on evenly spaced
windows of the rest. The main metric is bits per byte, which does not depend on a vocabulary.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from nas.common.errors import DataError
from nas.common.objectives import Metric
from nas.tasks.base import TASKS, Data, Examples, MakeAttention, Side
from nas.tasks.files import read_bytes
from nas.tasks.sequences.stories import synthetic_stories
from nas.tasks.sequences.task import SequenceTask

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

NUM_BYTES: Final = 256
TRAIN_FRACTION: Final = 0.9
SYNTHETIC_BYTES: Final = 400_000


@TASKS.register("bytes")
class BytesTask(SequenceTask):
    """A task that trains a causal transformer to predict the next byte of a text.

    Attributes:
        data: ``synthetic`` for stories that are generated from ``data_seed``, or ``file:PATH``.
        length: number of bytes in a window.
        train_examples: number of windows in an epoch; each epoch draws others.
        is_tied: whether the output layer shares the embedding's weights.
    """

    kind: ClassVar[str] = "bytes"
    data_kinds: ClassVar[Mapping[str, str]] = {"synthetic": "", "file": "PATH"}
    is_causal: ClassVar[bool] = True
    targets_name: ClassVar[str] = "held-out bytes"

    data: str = "synthetic"
    length: int = Field(default=64, ge=1, le=65_536)
    is_tied: bool = False

    def longer(self, factor: float) -> BytesTask:
        examples = max(self.batch_size, round(factor * self.train_examples))
        return self.model_copy(update={"train_examples": examples})

    def num_classes(self, data: Data) -> int:
        return NUM_BYTES

    def metrics(self, data: Data) -> tuple[Metric, ...]:
        """Return bits per byte and accuracy, whose chance is that of frequencies of bytes."""
        bits, share = data.facts["bits_by_frequency"], data.facts["commonest"]
        return (
            Metric("bits_per_byte", "bit", "min", bits, 0.0,
                   f"mean negative log2-likelihood of {self.targets_name}"),
            Metric("accuracy", "fraction", "max", share, 1.0,
                   f"share of {self.targets_name} predicted correctly"),
        )  # fmt: skip

    def load(self) -> Data:
        _, _, path = self.data.partition(":")
        raw = read_bytes(path) if path else synthetic_stories(self.data_seed, SYNTHETIC_BYTES)
        text = np.frombuffer(raw, np.uint8)
        cut = int(len(text) * TRAIN_FRACTION)
        train, held_out = text[:cut], text[cut:]
        spare = len(held_out) - self.length - 1
        if spare < 0:
            raise DataError(
                f"{self.data}: its last tenth holds {len(held_out)} bytes; expected "
                f"at least {self.length + 1}, a window and the byte after it."
            )
        count = min(self.validation_examples, spare + 1)
        starts = np.linspace(0, spare, count).astype(np.int64)
        rows = held_out[starts[:, None] + np.arange(self.length + 1)]
        digest = hashlib.blake2b(train.data, digest_size=8)
        digest.update(held_out.data)
        facts = _frequencies(train, rows)
        return Data(self.data, {"text": train}, {"rows": rows}, digest.hexdigest(), facts)

    def examples(
        self, data: Data, side: Side, device: torch.device, dtype: torch.dtype
    ) -> Examples:
        from nas.tasks.sequences.model import Rows, Windows

        if side == "train":
            return Windows(data.train["text"], self.length, device)
        rows = data.validation["rows"]
        return Rows(rows[:, :-1], rows[:, 1:], device)

    def epoch_size(self, data: Data) -> int:
        return self.train_examples

    def order(self, data: Data, epoch: int, rng: torch.Generator) -> Tensor:
        """Return uniformly random positions in the text, at which an epoch's windows start."""
        import torch

        num_starts = data.count("train") - self.length
        return torch.randint(num_starts, (self.train_examples,), generator=rng)

    def build_model(self, data: Data, attention: MakeAttention, seed: int) -> nn.Module:
        from nas.tasks.sequences.model import TokenModel

        return TokenModel(self, attention, seed, NUM_BYTES, NUM_BYTES, is_tied=self.is_tied)

    def score(self, totals: list[float]) -> dict[str, float]:
        scores = super().score(totals)
        bits = scores["log_loss"] / math.log(2)
        return {"bits_per_byte": bits, "accuracy": scores["accuracy"]}


def _frequencies(train: NDArray[np.uint8], rows: NDArray[np.uint8]) -> dict[str, float]:
    """Return bits per byte and accuracy of a model that predicts byte frequencies of ``train``.

    ``rows`` are validation windows, whose bytes after the first byte are the targets.
    """
    # bincount converts its input to int64, so it is called for parts of the text.
    parts = np.array_split(train, 1 + len(train) // 2**20)
    counts = np.sum([np.bincount(part, minlength=NUM_BYTES) for part in parts], axis=0) + 1.0
    frequencies, targets = counts / counts.sum(), rows[:, 1:]
    return {
        "bits_by_frequency": float(-np.log2(frequencies)[targets].mean()),
        "commonest": float((targets == counts.argmax()).mean()),
    }
