"""The task family ``bytes``: say the next byte of a text, which may be any file.

Windows of the first nine tenths of the text are trained on; windows of the rest judge, at places
that are spread evenly. The score is bits a byte, which no choice of words or tokens moves.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from pydantic import Field, field_validator

from nas.common.errors import DataError
from nas.common.objectives import Metric
from nas.genome import ModelSizes
from nas.tasks.base import TASKS, Data
from nas.tasks.sequences.corpus import checked_spec, made_story, read_bytes
from nas.tasks.sequences.hugging_face import read_text
from nas.tasks.sequences.task import SequenceTask

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from nas.tasks.base import Examples, MakeAttention, Side

NUM_BYTES: Final = 256
TRAINED_SHARE: Final = 0.9
MADE_BYTES: Final = 400_000


@TASKS.register("bytes")
class BytesTask(SequenceTask):
    """Model a text byte by byte.

    Attributes:
        data: ``made``, little stories from a seed, ``file:PATH``, or ``hf:NAME`` (see
            ``hugging_face``).
        length: bytes that a window shows.
        train_examples: windows of an epoch, drawn anew for each.
        is_tied: the weights that answer are those of the embedding.
    """

    kind: ClassVar[str] = "bytes"
    data_kinds: ClassVar[tuple[str, ...]] = ("made", "file", "hf")
    is_causal: ClassVar[bool] = True
    judged_things: ClassVar[str] = "held-out bytes"

    data: str = "made"
    length: int = Field(default=64, ge=1, le=65_536)
    is_tied: bool = False

    @field_validator("data")
    @classmethod
    def _data_exists(cls, value: str) -> str:
        return checked_spec(value, cls.data_kinds)

    @property
    def sizes(self) -> ModelSizes:
        """Model width, heads, layers and tokens."""
        return ModelSizes(self.width, self.heads, self.depth, self.length)

    def num_classes(self, data: Data) -> int:
        """Of bytes."""
        return NUM_BYTES

    def metrics(self, data: Data) -> tuple[Metric, ...]:
        """Bits a byte, and how often the likeliest byte is the right one."""
        bits, share = data.facts["bits_by_frequency"], data.facts["commonest"]
        return (
            Metric("bits_per_byte", "bit", "min", bits, 0.0,
                   f"mean negative log2-likelihood of {self.judged_things}"),
            Metric("accuracy", "fraction", "max", share, 1.0,
                   f"share of {self.judged_things} got right"),
        )  # fmt: skip

    def load(self) -> Data:
        """The text, and the windows of its end that judge."""
        text = self._text()
        cut = int(len(text) * TRAINED_SHARE)
        return self._judged(text[:cut], text[cut:], "last tenth")

    def load_test(self) -> Data:
        """What is trained on, and windows of the test part, which ``hf`` alone has."""
        if not self.data.startswith("hf:"):
            return super().load_test()
        return self._judged(self.load().train["text"], self._text(is_test=True), "test part")

    def _judged(self, train: NDArray[Any], held_out: NDArray[Any], part: str) -> Data:
        """Data whose windows lie in what is held out."""
        spare = len(held_out) - self.length - 1
        if spare < 0:
            raise DataError(
                f"{self.data}: its {part}, which judges, holds {len(held_out)} bytes; expected "
                f"at least {self.length + 1}, a window and what follows."
            )
        count = min(self.validation_examples, spare + 1)
        starts = np.linspace(0, spare, count).astype(np.int64)
        rows = held_out[starts[:, None] + np.arange(self.length + 1)]
        digest = hashlib.blake2b(train.data, digest_size=8)
        digest.update(held_out.data)
        facts = _frequencies(train, rows)
        return Data(self.data, {"text": train}, {"rows": rows}, digest.hexdigest(), facts)

    def _text(self, *, is_test: bool = False) -> NDArray[np.uint8]:
        kind, _, path = self.data.partition(":")
        if kind == "hf":
            raw = read_text(self.data, is_test=is_test)
        else:
            raw = read_bytes(path) if kind == "file" else made_story(self.data_seed, MADE_BYTES)
        return np.frombuffer(raw, np.uint8)

    def examples(
        self, data: Data, side: Side, device: torch.device, dtype: torch.dtype
    ) -> Examples:
        """The text on a device: batches of (bytes, next bytes)."""
        from nas.tasks.sequences.examples import Rows, Windows

        if side == "train":
            return Windows(data.train["text"], self.length, device)
        rows = data.validation["rows"]
        return Rows(rows[:, :-1], rows[:, 1:], device)

    def epoch_size(self, data: Data) -> int:
        """Windows of an epoch."""
        return self.train_examples

    def order(self, data: Data, epoch: int, rng: torch.Generator) -> Tensor:
        """Places where windows start, each as likely."""
        import torch

        places = data.count("train") - self.length
        return torch.randint(places, (self.train_examples,), generator=rng)

    def build_model(self, data: Data, attention: MakeAttention, seed: int) -> nn.Module:
        """A causal transformer over bytes."""
        from nas.tasks.sequences.model import TokenModel

        return TokenModel(self, attention, seed, NUM_BYTES, NUM_BYTES, is_tied=self.is_tied)

    def score(self, totals: list[float]) -> dict[str, float]:
        """Bits a byte, and accuracy."""
        found = super().score(totals)
        return {
            "bits_per_byte": found["log_loss"] / math.log(2),
            "accuracy": found["accuracy"],
        }


def _frequencies(train: NDArray[np.uint8], rows: NDArray[np.uint8]) -> dict[str, float]:
    """What a model scores that knows how often each byte comes, and nothing else."""
    counts = np.bincount(train, minlength=NUM_BYTES) + 1.0
    shares, judged = counts / counts.sum(), rows[:, 1:]
    return {
        "bits_by_frequency": float(-np.log2(shares)[judged].mean()),
        "commonest": float((judged == counts.argmax()).mean()),
    }
