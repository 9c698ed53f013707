"""What a task is: all that decides how a candidate is trained and judged, behind one boundary.

Above it, nothing knows images or tokens: a task gives sizes, data, models with a slot for attention
in each layer, a loss, and metrics. A family is a class with a ``kind``; a task is one of its
instances, read from YAML. ``TASKS`` knows the families. Most train one model (``ModelTask``).
"""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol, TypeAlias

from pydantic import Field, model_validator

from nas.common.config import Frozen, Name
from nas.common.errors import DataError, TaskError
from nas.common.registry import Registry
from nas.genome import ModelSizes

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from nas.common.objectives import Metric
    from nas.compiler import ResolvedGenome
    from nas.genome import Genome

Side: TypeAlias = Literal["train", "validation"]
Batch: TypeAlias = "tuple[Tensor, ...]"
MakeAttention: TypeAlias = "Callable[[int], nn.Module]"


@dataclass(frozen=True, eq=False)
class Data:
    """The data of a search: plain contiguous arrays, which the workers of a machine share.

    Each instance is equal to itself alone, so that what was prepared from it can be kept.

    Attributes:
        name: the spec that a person gave.
        train, validation: columns by name, equally long within a side; disjoint.
        digest: of the content, 16 hex characters: moved data are the same data.
        facts: small values that model or batches need (number of classes, mean, deviation).
        parts: the data of a task that is made of several, by their names.
    """

    name: str
    train: Mapping[str, NDArray[np.generic]]
    validation: Mapping[str, NDArray[np.generic]]
    digest: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, Data] = field(default_factory=dict)

    def count(self, side: Side) -> int:
        """Examples of a side."""
        return len(next(iter(getattr(self, side).values())))


class Examples(Protocol):
    """One side of the data on a device, ready to be cut into batches."""

    def __len__(self) -> int: ...

    def batch(self, chosen: Tensor) -> Batch:
        """The chosen examples (indices, on the device): no Python an example, no waiting."""
        ...


class Task(Frozen):
    """What candidates are trained on: one model, or several one after the other.

    Attributes:
        kind: of the family, as ``TASKS`` and YAML name it.
        data_kinds: what ``data`` may begin with, up to a colon.
        name, about: for people; they change no result.
        data: where examples come from, as the family reads it.
    """

    kind: ClassVar[str]
    data_kinds: ClassVar[tuple[str, ...]]

    name: Name
    about: str = ""
    data: str

    @property
    @abstractmethod
    def main(self) -> ModelTask:
        """The one at whose sizes mechanisms are named and counted."""

    def resolve(self, genome: Genome) -> ResolvedGenome:
        """The genome in normal form at the sizes of ``main``.

        Raises:
            GenomeError: the mechanism does not exist at these sizes.
        """
        from nas.compiler import resolve

        return resolve(genome, self.main.sizes, self.main.is_causal)

    @abstractmethod
    def load(self) -> Data:
        """The data, in memory; raises DataError where they cannot be had."""

    def load_test(self) -> Data:
        """The same training examples, with the data's test set in place of what is held out.

        A search never calls this. Raises DataError where there is no test set, as here.
        """
        raise DataError(
            f"task {self.name!r} has no test set with data {self.data}; expected one that has, "
            "such as images."
        )

    @abstractmethod
    def models(self, data: Data) -> Mapping[str, tuple[ModelTask, Data]]:
        """What a candidate is trained in, by name and in order; one alone has the name ""."""

    @abstractmethod
    def metrics(self, data: Data) -> tuple[Metric, ...]:
        """What judges a candidate, the first being what is searched by default."""

    @abstractmethod
    def summary(self, found: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        """Metrics by name, from those of the models that were trained, by their names."""

    def missed(self, found: Mapping[str, Mapping[str, float]]) -> str:
        """Why a candidate is trained no further after these models, or nothing."""
        return ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data that ``nas.tasks.parse_task`` reads, ``kind`` included."""
        return {"kind": self.kind, **self.model_dump(mode="json")}

    def fingerprint(self) -> str:
        """A digest, 16 hex characters, of everything here that changes a result, data apart."""
        fields = self.model_dump(mode="json", exclude={"name", "about", "data"})
        return fingerprint_of([self.kind, RECIPE, fields])


class ModelTask(Task):
    """A task that trains one model; families add their data and model.

    Attributes:
        is_causal: whether each token sees itself and earlier ones alone.
        num_tallies: how many numbers ``tally`` gives.
        width, depth, heads, mlp_ratio, activation, dropout, final_norm, qkv_bias, init_std: of the
            transformer.
        epochs, batch_size: of the training; after each epoch it reports.
        learning_rate, weight_decay, decay, beta2, clip: of AdamW; the rate is the peak of
            ``one_cycle``; ``decay`` says which weights do, ``clip`` bounds the gradient's norm.
        schedule: ``one_cycle`` (Smith & Topin 2018) or ``constant``.
        precision: ``float32``, ``bfloat16`` (mixed), or ``auto``: mixed where the hardware has
            instructions for it.
        data_seed: of every draw that makes or splits the data.
    """

    is_causal: ClassVar[bool] = False
    num_tallies: ClassVar[int]

    width: int = Field(default=64, ge=1, le=8192)
    depth: int = Field(default=2, ge=1, le=128)
    heads: int = Field(default=4, ge=1)
    mlp_ratio: float = Field(default=2.0, gt=0, le=64)
    activation: Literal["gelu", "relu"] = "gelu"
    dropout: float = Field(default=0.0, ge=0, lt=1)
    final_norm: bool = True
    qkv_bias: bool = False
    init_std: float = Field(default=0.02, ge=0, le=100)
    epochs: int = Field(default=3, ge=1)
    batch_size: int = Field(default=64, ge=1)
    learning_rate: float = Field(default=3e-3, gt=0, le=1000)
    weight_decay: float = Field(default=0.05, ge=0, le=1000)
    decay: Literal["all", "matrices"] = "all"
    beta2: float = Field(default=0.999, gt=0, lt=1)
    clip: float | None = Field(default=None, gt=0)
    schedule: Literal["one_cycle", "constant"] = "one_cycle"
    precision: Literal["auto", "bfloat16", "float32"] = "auto"
    data_seed: int = Field(default=0, ge=0, lt=2**63)

    @model_validator(mode="after")
    def _heads_divide_width(self) -> ModelTask:
        if self.width % self.heads:
            raise ValueError(f"heads is {self.heads}; expected a divisor of width {self.width}")
        return self

    @property
    def main(self) -> ModelTask:
        """Itself."""
        return self

    @property
    @abstractmethod
    def sizes(self) -> ModelSizes:
        """Model width, heads, layers and tokens."""

    def models(self, data: Data) -> Mapping[str, tuple[ModelTask, Data]]:
        """This one."""
        return {"": (self, data)}

    def summary(self, found: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        """What its model scored."""
        return dict(found[""])

    @abstractmethod
    def examples(
        self, data: Data, side: Side, device: torch.device, dtype: torch.dtype
    ) -> Examples:
        """A side of the data on a device; ``dtype`` is what the first layer reads."""

    def epoch_size(self, data: Data) -> int:
        """How many training examples an epoch has."""
        return data.count("train")

    def order(self, data: Data, epoch: int, rng: torch.Generator) -> Tensor:
        """The training examples of an epoch (from 1), as indices in order: here all, shuffled."""
        import torch

        return torch.randperm(self.epoch_size(data), generator=rng)

    @abstractmethod
    def num_eval_examples(self, data: Data, epoch: int) -> int:
        """How many validation examples, from the first on, judge an epoch."""

    @abstractmethod
    def build_model(self, data: Data, attention: MakeAttention, seed: int) -> nn.Module:
        """The model, with ``attention(layer)`` in each slot; ``attentions()`` lists the slots."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int]:
        """Sum of the losses over the batch's targets, and how many targets those are."""

    @abstractmethod
    def tally(self, model: nn.Module, batch: Batch) -> Tensor:
        """What ``score`` needs of a batch: (num_tallies,), to be added up over batches."""

    @abstractmethod
    def score(self, totals: list[float]) -> dict[str, float]:
        """The metrics by name, from the tallies of all batches."""


def fingerprint_of(content: Any) -> str:
    """A digest of plain data, 16 hex characters."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


RECIPE: Final = 3
"""Raised when the same task begins to give other results."""

TASKS: Final[Registry[type[Task]]] = Registry(
    "task family",
    "nas.tasks",
    modules=("nas.tasks.images", "nas.tasks.sequences", "nas.tasks.suite"),
    error=TaskError,
)
