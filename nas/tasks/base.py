"""The base classes of tasks, which determine how a candidate is trained and evaluated.

A task defines data, a model whose attention modules are exchangeable, a loss, and metrics. Other
packages do not depend on the kind of data. A task family is a subclass of `Task` that is registered
in ``TASKS`` under its ``kind``. A task is an instance of a family, usually read from YAML. Most
families train one model (`ModelTask`), which classifies (`Classification`).
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Protocol, TypeAlias

from pydantic import Field, field_validator, model_validator

from nas.common.config import Frozen, Name
from nas.common.errors import DataError, GenomeError, TaskError
from nas.common.objectives import Metric
from nas.common.registry import Registry
from nas.genome import STANDARD, Genome, ModelSizes
from nas.genome.mechanisms import mechanism
from nas.tasks.files import checked_spec

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from nas.compiler import ResolvedGenome

Side: TypeAlias = Literal["train", "validation"]
Batch: TypeAlias = "tuple[Tensor, ...]"
MakeAttention: TypeAlias = "Callable[[int], nn.Module]"

IGNORE_INDEX: Final = -1  # the label of tokens that are not classified


@dataclass(frozen=True, eq=False)
class Data:
    """The training and validation data of a task, as contiguous arrays.

    The workers of a machine share the arrays. Instances are compared by identity, so that an
    instance can be the key of a cache.

    Attributes:
        name: the data spec.
        train, validation: disjoint splits; each maps names of columns to arrays of equal length.
        digest: digest of the content, 16 hex characters; it does not depend on file paths.
        facts: small values that models or batches need, such as the names of the classes.
        parts: data of each model of a gated task, by names as in ``Task.models``; else empty.
    """

    name: str
    train: Mapping[str, NDArray[np.generic]]
    validation: Mapping[str, NDArray[np.generic]]
    digest: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, Data] = field(default_factory=dict)

    def columns(self, side: Side) -> Mapping[str, NDArray[np.generic]]:
        """Return the columns of a split, "train" or "validation"."""
        return self.train if side == "train" else self.validation

    def count(self, side: Side) -> int:
        """Return the number of examples of a split."""
        return len(next(iter(self.columns(side).values())))


class Examples(Protocol):
    """The examples of a data split on a device, of which ``chosen`` are indices, shape (b,)."""

    def __len__(self) -> int: ...

    def batch(self, chosen: Tensor) -> Batch: ...


class Task(Frozen):
    """A task that trains one model, or several models in turn.

    Attributes:
        kind: name of the task family in ``TASKS`` and YAML.
        data_kinds: the kinds of data that ``data`` may name, with forms as in ``checked_spec``.
        name, about: name and description of the task; they do not change results.
        data: the data spec, which says where the examples come from: a kind of data, or a kind, a
            colon and a path or name, such as "file:book.txt".
    """

    kind: ClassVar[str]
    data_kinds: ClassVar[Mapping[str, str]] = {}

    name: Name
    about: str = ""
    data: str

    @property
    @abstractmethod
    def main(self) -> ModelTask:
        """The model task at whose width, heads, layers and tokens costs are computed."""

    def resolve(self, genome: Genome) -> ResolvedGenome:
        """Return the genome's normal form at ``main.sizes``; raise GenomeError if none exists."""
        from nas.compiler import resolve

        return resolve(genome, self.main.sizes, self.main.is_causal)

    @abstractmethod
    def load(self) -> Data:
        """Return training and validation data; raise DataError if they cannot be read."""

    def load_test(self) -> Data:
        """Return the training examples of `load`, with the test set as validation examples.

        A search never calls this method. DataError is raised if there is no test set, as in this
        base class, or if it cannot be read.
        """
        raise DataError(
            f"task {self.name!r} has no test set with data {self.data}; expected one that has, "
            "such as images."
        )

    @abstractmethod
    def models(self, data: Data) -> Mapping[str, tuple[ModelTask, Data]]:
        """Return the task and the data of each model to train, by name, in the order of training.

        The name of the scored model, which every task has, is "".
        """

    @abstractmethod
    def metrics(self, data: Data) -> tuple[Metric, ...]:
        """Return descriptions of the task's metrics; the first metric is the default objective."""

    def summary(self, metrics: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        """Return the metrics of the models trained so far by name: "metric" or "model.metric"."""
        return {
            f"{model}.{name}" if model else name: value
            for model, scores in metrics.items()
            for name, value in scores.items()
        }

    def missed(self, metrics: Mapping[str, Mapping[str, float]]) -> str:
        """Return why a candidate with these metrics is not trained in further models, or ""."""
        return ""

    @abstractmethod
    def at_rates(self) -> Mapping[float, Task]:
        """Return the task at each learning rate of the scored model; raise TaskError without."""

    def to_dict(self) -> dict[str, Any]:
        """Return the task as plain data, including ``kind``, for ``nas.tasks.parse_task``."""
        return {"kind": self.kind, **self.model_dump(mode="json")}

    def fingerprint(self) -> str:
        """Return a digest, 16 hex characters, of the fields that change metrics, without data."""
        others = {"name", "about", "data", "learning_rates", "reference"}
        fields = self.model_dump(mode="json", exclude=others)
        return fingerprint_of([self.kind, RECIPE, fields])


class ModelTask(Task):
    """A task that trains one transformer; a subclass adds the data and the model.

    Attributes:
        is_causal: whether each token attends only to itself and earlier tokens.
        is_padded: whether sequences have padding, which attention must ignore.
        reference: named mechanism with which others are compared; it does not change a training.
        width, depth: number of features of each token, and number of layers.
        mlp_ratio: hidden width of the feed-forward networks divided by ``width``.
        feed_forward: their activation. ``relu_squared`` (So et al. 2021) and ``swiglu`` (Shazeer
            2020) are without biases.
        dropout: dropout rate of each branch before its residual connection.
        final_norm: whether a norm follows the last layer.
        zero_init: whether the last matrix of each branch, that is, of attention and of the
            feed-forward network, is initially zero. A user's own module is left as it is.
        positions: ``learned`` position embeddings, or ``none``.
        registers: number of learned tokens before the tokens of each example (Darcet et al. 2024).
        init_std: standard deviation of the initial embeddings of tokens and positions.
        optimizer: ``adamw``, or ``muon`` for the matrices of linear maps in the layers and AdamW
            for the other weights.
        learning_rate: the largest rate of the schedule.
        learning_rates: rates from which comparisons choose for each mechanism, ascending, with
            ``learning_rate``; empty if the task offers none. They do not change a training.
        decay: the weights to which weight decay applies: ``all``, or only ``matrices``.
        clip: largest norm of the gradient of all weights.
        schedule: schedule of the learning rate: ``one_cycle`` (Smith & Topin 2018), ``constant``,
            or ``warmdown`` (a short rise, a constant rate, and a linear fall to zero).
        precision: ``float32``, ``bfloat16`` (mixed), or ``auto``: mixed precision if the hardware
            has instructions for it, and on a GPU only from a width of 256 on.
        data_seed: seed of all random numbers that generate or split the data.
    """

    is_causal: ClassVar[bool] = False
    is_padded: ClassVar[bool] = False
    num_tallies: ClassVar[int]

    reference: str = STANDARD
    width: int = Field(default=64, ge=1, le=8192)
    depth: int = Field(default=2, ge=1, le=128)
    heads: int = Field(default=4, ge=1)
    mlp_ratio: float = Field(default=2.0, gt=0, le=64)
    feed_forward: Literal["gelu", "relu", "relu_squared", "swiglu"] = "gelu"
    norm: Literal["layer", "rms"] = "layer"
    dropout: float = Field(default=0.0, ge=0, lt=1)
    final_norm: bool = True
    qkv_bias: bool = False
    zero_init: bool = False
    positions: Literal["learned", "none"] = "learned"
    registers: int = Field(default=0, ge=0, le=1024)
    init_std: float = Field(default=0.02, ge=0, le=100)
    epochs: int = Field(default=3, ge=1)
    batch_size: int = Field(default=64, ge=1)
    optimizer: Literal["adamw", "muon"] = "adamw"
    learning_rate: float = Field(default=3e-3, gt=0, le=1000)
    learning_rates: tuple[Annotated[float, Field(gt=0, le=1000)], ...] = ()
    weight_decay: float = Field(default=0.05, ge=0, le=1000)
    decay: Literal["all", "matrices"] = "all"
    beta2: float = Field(default=0.999, gt=0, lt=1)
    clip: float | None = Field(default=None, gt=0)
    schedule: Literal["one_cycle", "constant", "warmdown"] = "one_cycle"
    precision: Literal["auto", "bfloat16", "float32"] = "auto"
    data_seed: int = Field(default=0, ge=0, lt=2**63)

    @field_validator("data")
    @classmethod
    def _data_has_a_kind(cls, value: str) -> str:
        return checked_spec(value, cls.data_kinds)

    @field_validator("reference")
    @classmethod
    def _reference_is_known(cls, value: str) -> str:
        try:
            return mechanism(value).name
        except GenomeError as error:
            raise ValueError(str(error)) from None

    @model_validator(mode="after")
    def _heads_divide_width(self) -> ModelTask:
        if self.width % self.heads:
            raise ValueError(f"heads is {self.heads}; expected a divisor of width {self.width}")
        return self

    @model_validator(mode="after")
    def _rates_are_ordered(self) -> ModelTask:
        rates = self.learning_rates
        if rates and (len(rates) < 2 or [*rates] != sorted({*rates})):
            raise ValueError(f"learning_rates are {[*rates]}; expected two or more, ascending")
        if rates and self.learning_rate not in rates:
            raise ValueError(
                f"learning_rate is {self.learning_rate}; expected one of learning_rates, {[*rates]}"
            )
        return self

    def at_rates(self) -> Mapping[float, Task]:
        if not self.learning_rates:
            raise TaskError(
                f"task {self.name!r} offers no learning rates to choose from; expected a task that "
                "lists `learning_rates`."
            )
        return {r: self.model_copy(update={"learning_rate": r}) for r in self.learning_rates}

    def longer(self, factor: float) -> ModelTask:
        """Return the task with ``factor`` times as many training examples."""
        return self.model_copy(update={"epochs": max(1, round(factor * self.epochs))})

    @property
    def main(self) -> ModelTask:
        return self

    @property
    def controls(self) -> tuple[str, str]:
        """The names of the reference and of ``uniform``, the mean of all tokens."""
        return self.reference, "uniform"

    @property
    @abstractmethod
    def sizes(self) -> ModelSizes:
        """The model's width, and its numbers of heads, layers and tokens."""

    def models(self, data: Data) -> Mapping[str, tuple[ModelTask, Data]]:
        return {"": (self, data)}

    @abstractmethod
    def examples(
        self, data: Data, side: Side, device: torch.device, dtype: torch.dtype
    ) -> Examples:
        """Return a split of the data on a device; ``dtype`` is that of the model's inputs."""

    def epoch_size(self, data: Data) -> int:
        """Return the number of training examples in an epoch."""
        return data.count("train")

    def order(self, data: Data, epoch: int, rng: torch.Generator) -> Tensor:
        """Return the indices of an epoch's training examples, in the order of training.

        The default is a random permutation of all. Epochs are numbered from 1.
        """
        import torch

        return torch.randperm(self.epoch_size(data), generator=rng)

    def num_eval_examples(self, data: Data, epoch: int) -> int:
        """Return how many validation examples, from the first on, are evaluated after an epoch."""
        return data.count("validation")

    @abstractmethod
    def build_model(self, data: Data, attention: MakeAttention, seed: int) -> nn.Module:
        """Return the untrained model, whose method ``attentions()`` returns its attention modules.

        ``attention`` returns the attention module of a layer, given its index. All initial weights
        are drawn from ``seed``.
        """

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int]:
        """Return a model's loss, summed over the targets of a batch, and the number of targets."""

    @abstractmethod
    def tally(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return sums over a batch, shape (num_tallies,), from which ``score`` gets metrics."""

    @abstractmethod
    def score(self, totals: list[float]) -> dict[str, float]:
        """Return the task's metrics by name, from the sums of ``tally`` over all batches."""


class Classification(ModelTask):
    """A task whose models predict a class for each example or some of its tokens.

    A batch is a pair (inputs, labels); a model returns one row of logits for each label. The loss
    and the metrics, accuracy and log-loss, ignore labels that are equal to ``IGNORE_INDEX``.
    ``targets_name`` is what is classified, as a plural noun for the descriptions of metrics.
    """

    num_tallies: ClassVar[int] = 3
    targets_name: ClassVar[str]

    def num_classes(self, data: Data) -> int:
        """Return the number of logits, by default that of the fact ``classes``."""
        return len(data.facts["classes"])

    def metrics(self, data: Data) -> tuple[Metric, ...]:
        chance, targets = 1.0 / self.num_classes(data), self.targets_name
        return (
            Metric("accuracy", "fraction", "max", chance, 1.0,
                   f"share of {targets} classified correctly"),
            Metric("log_loss", "nat", "min", -math.log(chance), 0.0,
                   f"mean negative log-likelihood of {targets}"),
        )  # fmt: skip

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        inputs, labels = batch
        return _cross_entropy(model(inputs).float().flatten(0, -2), labels.flatten())

    def tally(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return sums over a batch: correct answers, cross entropies, and the number of labels."""
        import torch

        inputs, labels = batch
        logits, targets = model(inputs).float().flatten(0, -2), labels.flatten()
        correct = (logits.argmax(dim=-1) == targets).sum()
        return torch.stack([t.double() for t in (correct, *_cross_entropy(logits, targets))])

    def score(self, totals: list[float]) -> dict[str, float]:
        correct, loss, count = totals
        return {"accuracy": correct / count, "log_loss": loss / count}


def _cross_entropy(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    from torch.nn.functional import cross_entropy

    loss = cross_entropy(logits, targets, reduction="sum", ignore_index=IGNORE_INDEX)
    return loss, (targets != IGNORE_INDEX).sum()


def fingerprint_of(content: Any) -> str:
    """Return a digest of plain data, 16 hex characters."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


RECIPE: Final = 4  # of the training; incremented when the same task gives other results

TASKS: Final[Registry[type[Task]]] = Registry(
    "task family",
    "nas.tasks",
    modules=("nas.tasks.images", "nas.tasks.sequences", "nas.tasks.gated"),
    error=TaskError,
)
