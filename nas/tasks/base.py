"""The base classes of tasks, which determine how a candidate is trained and evaluated.

A task defines data, a model whose attention modules are exchangeable, a loss, and metrics. Other
packages do not depend on the kind of data. A family of tasks is a class with a
``kind``, registered in ``TASKS``; a task is an instance of it, read from YAML. Most families train
one model (``ModelTask``).
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
from nas.common.objectives import Metric
from nas.common.registry import Registry
from nas.genome import Genome, ModelSizes

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from nas.compiler import ResolvedGenome

Side: TypeAlias = Literal["train", "validation"]
Batch: TypeAlias = "tuple[Tensor, ...]"
MakeAttention: TypeAlias = "Callable[[int], nn.Module]"


@dataclass(frozen=True, eq=False)
class Data:
    """The data of a task: contiguous arrays, which the workers of a machine share.

    Instances compare by identity, so that prepared examples can be cached.

    Attributes:
        name: the data spec, a text that says where the examples come from.
        train, validation: disjoint splits; each maps names of columns to arrays of equal length.
        digest: digest of the content, 16 hex characters; it does not depend on file paths.
        facts: small values that models or batches need, such as classes, mean and deviation.
        parts: data of each task in a suite, by name; empty for other tasks.
    """

    name: str
    train: Mapping[str, NDArray[np.generic]]
    validation: Mapping[str, NDArray[np.generic]]
    digest: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, Data] = field(default_factory=dict)

    def count(self, side: Side) -> int:
        """Return the number of examples of a split."""
        return len(next(iter(getattr(self, side).values())))


class Examples(Protocol):
    """The examples of a data split on a device."""

    def __len__(self) -> int: ...

    def batch(self, chosen: Tensor) -> Batch:
        """Return the batch of the examples with the indices ``chosen``, shape (b,)."""
        ...


class Task(Frozen):
    """A task that trains one model, or several in turn.

    Attributes:
        kind: name of the task family in ``TASKS`` and YAML.
        data_kinds: kinds of data; ``data`` is one of them, or begins with one and a colon.
        name, about: name and description of the task; they do not change results.
        data: the data spec, a text that says where the examples come from.
    """

    kind: ClassVar[str]
    data_kinds: ClassVar[tuple[str, ...]]

    name: Name
    about: str = ""
    data: str

    @property
    @abstractmethod
    def main(self) -> ModelTask:
        """The model task at whose sizes mechanisms are resolved and counted."""

    def resolve(self, genome: Genome) -> ResolvedGenome:
        """Return the genome in normal form at the sizes of ``main``.

        Raises:
            GenomeError: the mechanism does not exist at these sizes.
        """
        from nas.compiler import resolve

        return resolve(genome, self.main.sizes, self.main.is_causal)

    @abstractmethod
    def load(self) -> Data:
        """Return training and validation data; raise DataError if they cannot be read."""

    def load_test(self) -> Data:
        """Return the same training examples, with the test set as validation examples.

        A search never calls this method. The default raises DataError: there is no test set.
        """
        raise DataError(
            f"task {self.name!r} has no test set with data {self.data}; expected one that has, "
            "such as images."
        )

    @abstractmethod
    def models(self, data: Data) -> Mapping[str, tuple[ModelTask, Data]]:
        """Return the models to train in order, with their data, by name; a single one is ""."""

    @abstractmethod
    def metrics(self, data: Data) -> tuple[Metric, ...]:
        """Return the metrics of a candidate; the first one is the default objective."""

    @abstractmethod
    def summary(self, metrics: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        """Return the task's metrics by name, computed from the metrics of each trained model."""

    def missed(self, metrics: Mapping[str, Mapping[str, float]]) -> str:
        """Return why no further model is trained, such as a missed gate of a suite; else ""."""
        return ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, including ``kind``, that ``nas.tasks.parse_task`` reads."""
        return {"kind": self.kind, **self.model_dump(mode="json")}

    def fingerprint(self) -> str:
        """Return a digest of all fields that change results, except the data, 16 hex characters."""
        fields = self.model_dump(mode="json", exclude={"name", "about", "data"})
        return fingerprint_of([self.kind, RECIPE, fields])


class ModelTask(Task):
    """A task that trains one model; a task family is a subclass that adds data and model.

    Attributes:
        is_causal: whether each token attends only to itself and earlier tokens.
        num_tallies: length of the tensor that ``tally`` returns.
        width, depth, heads, mlp_ratio, activation, dropout, final_norm, qkv_bias, init_std:
            hyperparameters of the transformer.
        epochs, batch_size: number of epochs, and of examples in a batch.
        learning_rate, weight_decay, decay, beta2, clip: hyperparameters of AdamW. The learning rate
            is the peak of the schedule; ``decay`` selects the weights that decay; ``clip`` bounds
            the norm of the gradient.
        schedule: ``one_cycle`` (Smith & Topin 2018) or ``constant``.
        precision: ``float32``, ``bfloat16`` (mixed), or ``auto``: mixed precision if the hardware
            has instructions for it.
        data_seed: seed of all random numbers that generate or split the data.
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
        """This task."""
        return self

    @property
    @abstractmethod
    def sizes(self) -> ModelSizes:
        """Model width, heads, layers and tokens."""

    def models(self, data: Data) -> Mapping[str, tuple[ModelTask, Data]]:
        """Return this task and its data, under the name ""."""
        return {"": (self, data)}

    def summary(self, metrics: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        """Return the metrics of the model."""
        return dict(metrics[""])

    @abstractmethod
    def examples(
        self, data: Data, side: Side, device: torch.device, dtype: torch.dtype
    ) -> Examples:
        """Return a split of the data on a device; ``dtype`` is the dtype of the model's input."""

    def epoch_size(self, data: Data) -> int:
        """Return the number of training examples of an epoch."""
        return data.count("train")

    def order(self, data: Data, epoch: int, rng: torch.Generator) -> Tensor:
        """Return the indices of an epoch's training examples in order, by default shuffled.

        Args:
            epoch: number of the epoch, from 1.
        """
        import torch

        return torch.randperm(self.epoch_size(data), generator=rng)

    def num_eval_examples(self, data: Data, epoch: int) -> int:
        """Return how many validation examples, from the first one, evaluate an epoch."""
        return data.count("validation")

    @abstractmethod
    def build_model(self, data: Data, attention: MakeAttention, seed: int) -> nn.Module:
        """Return the model with ``attention(i)`` in layer i; ``attentions()`` returns them all."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int]:
        """Return the sum of losses over a batch's targets, and the number of targets."""

    @abstractmethod
    def tally(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return sums over a batch, (num_tallies,), from whose totals ``score`` is computed."""

    @abstractmethod
    def score(self, totals: list[float]) -> dict[str, float]:
        """Return the metrics by name, computed from the tallies summed over all batches."""


def fingerprint_of(content: Any) -> str:
    """Return a digest of plain data, 16 hex characters."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


RECIPE: Final = 3
"""Version of the training procedure; incremented when the same task gives other results."""

TASKS: Final[Registry[type[Task]]] = Registry(
    "task family",
    "nas.tasks",
    modules=("nas.tasks.images", "nas.tasks.sequences", "nas.tasks.suite"),
    error=TaskError,
)
