"""The task: everything that decides how a candidate is trained and judged, as data.

A task is a YAML file; the built-in ones lie beside this module. It gives the backbone into which
a mechanism is put, the images, the training and its budget. ``for_data`` in a task file holds
what other data need instead (a small set wants more epochs); it is resolved on loading, so that
a task in hand, or frozen in a run, says plainly what is done.
"""

from __future__ import annotations

import hashlib
import json
import os.path
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from pydantic import Field, field_validator, model_validator

from nas.config import Frozen, Name, describe, near, parse_model, read_document
from nas.errors import ConfigError, TaskError

if TYPE_CHECKING:
    from collections.abc import Mapping

BUILT_IN: Final = Path(__file__).parent
DATA_KINDS: Final = ("cifar10", "digits", "imagefolder")
# Raised when the same task begins to give other results: one without dropout, one with it.
RECIPE: Final = 1
DROPOUT_RECIPE: Final = 2
# Fields of later versions; at their default a task has the digest that it had before them.
LATER_FIELDS: Final = ("augmentation", "compile")


class TaskSizes(NamedTuple):
    """What a mechanism needs to know of the backbone; ``tokens`` counts the class token."""

    dim: int
    heads: int
    depth: int
    tokens: int


class Task(Frozen):
    """How to train and judge a candidate.

    Attributes:
        name, about: for people; they change no result.
        data: ``cifar10``, ``digits`` or ``imagefolder:PATH``.
        image_size, patch: edge lengths in pixels; images are brought to ``image_size``.
        width, depth, heads, mlp_ratio, activation, final_norm: of the transformer.
        qkv_bias: whether W_Q, W_K and W_V have a bias.
        init_std: deviation of class token and positions at the start.
        dropout: rate at which each branch is dropped before it joins the residual stream.
        epochs, batch_size: of the training.
        train_images, validation_images: drawn from the data's training part, as many of each
            class as there are; where there are fewer in all, both shrink in proportion.
        curve_images: how many of the validation images judge the epochs before the last.
        data_seed: of that draw.
        learning_rate, weight_decay: of AdamW; the rate is the peak of ``one_cycle``.
        schedule: ``one_cycle`` (Smith & Topin 2018) or ``constant``.
        precision: ``float32``, ``bfloat16`` (mixed), or ``auto``: mixed where the hardware has
            instructions for it.
        augmentation: of the training images: ``none``, or ``flip_shift``, which mirrors half of
            them and moves each by up to an eighth of its size along both axes, at random.
        compile: torch.compile for the attention blocks in training: ``never``, ``always``, or
            ``auto``: on a GPU, where the training is long enough to win the time back.
    """

    name: Name
    about: str = ""
    data: str = "cifar10"
    image_size: int = Field(default=32, ge=1, le=1024)
    patch: int = Field(default=4, ge=1)
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
    train_images: int = Field(default=2880, ge=1)
    validation_images: int = Field(default=5000, ge=1)
    curve_images: int = Field(default=1000, ge=1)
    data_seed: int = Field(default=0, ge=0, lt=2**63)
    learning_rate: float = Field(default=3e-3, gt=0, le=1000)
    weight_decay: float = Field(default=0.05, ge=0, le=1000)
    schedule: Literal["one_cycle", "constant"] = "one_cycle"
    precision: Literal["auto", "bfloat16", "float32"] = "auto"
    augmentation: Literal["none", "flip_shift"] = "none"
    compile: Literal["never", "auto", "always"] = "never"

    @field_validator("data")
    @classmethod
    def _data_exists(cls, value: str) -> str:
        kind, colon, path = value.partition(":")
        if kind not in DATA_KINDS or bool(path) != (kind == "imagefolder") or (colon and not path):
            raise ValueError(
                f"found {value!r}{near(kind, DATA_KINDS)}; "
                "expected cifar10, digits or imagefolder:PATH"
            )
        # A run that is resumed from another folder must find the same images; a path from the
        # home folder stays one, so that it also holds on another machine.
        if not path or path.startswith("~"):
            return value
        return f"{kind}:{os.path.abspath(path)}"

    @model_validator(mode="after")
    def _sizes_fit(self) -> Task:
        if self.image_size % self.patch:
            raise ValueError(
                f"patch is {self.patch}; expected a divisor of image_size {self.image_size}"
            )
        if self.width % self.heads:
            raise ValueError(f"heads is {self.heads}; expected a divisor of width {self.width}")
        return self

    @property
    def sizes(self) -> TaskSizes:
        """Model width, heads, layers and tokens."""
        tokens = (self.image_size // self.patch) ** 2 + 1
        return TaskSizes(self.width, self.heads, self.depth, tokens)

    @property
    def budget(self) -> str:
        """The training budget in words."""
        return budget_text(self.epochs, self.train_images)

    def fingerprint(self) -> str:
        """A digest, 16 hex characters, of everything here that changes a result.

        What lies behind ``data`` is not read; an ``ImageData`` has a digest of its own.
        """
        fields = self.model_dump(mode="json", exclude={"name", "about"})
        for name in LATER_FIELDS:
            if fields[name] == Task.model_fields[name].default:
                del fields[name]
        recipe = DROPOUT_RECIPE if self.dropout else RECIPE
        text = json.dumps([recipe, fields], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def budget_text(epochs: int, images: int) -> str:
    """A training budget in words."""
    return f"{epochs} epoch{'s' if epochs != 1 else ''} x {images} images"


def load_task(
    name_or_path: str, *, data: str | None = None, overrides: Mapping[str, Any] | None = None
) -> Task:
    """Read a task by name or by path.

    Args:
        data: data to use instead of the task's own.
        overrides: fields to set last; they win over what the file says for these data.

    Raises:
        TaskError: there is no such task.
        ConfigError: it cannot be read, or cannot be trained as written.
    """
    path = _find(name_or_path)
    document = read_document(path)
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: found {describe(document)}; expected a mapping of keys.")
    fields = dict(document)
    for_data = fields.pop("for_data", None) or {}
    changed = dict(overrides or {})
    spec = data or changed.get("data") or fields.get("data") or Task.model_fields["data"].default
    fields["data"] = spec
    where = f"{path} with data {spec}" if data else str(path)
    where += f" (with {', '.join(overrides)} set by the space or caller)" if overrides else ""
    special = _special(for_data, spec, str(path))
    if data:
        changed["data"] = data
    return parse_model({**fields, **special, **changed}, Task, where)


def built_in_tasks() -> list[str]:
    """The names of the tasks that come with the package, sorted."""
    return sorted(path.stem for path in BUILT_IN.glob("*.yaml"))


def _find(name_or_path: str) -> Path:
    path = Path(name_or_path)
    if path.suffix in {".yaml", ".yml", ".json"}:
        return path
    known = built_in_tasks()
    if name_or_path in known:
        return BUILT_IN / f"{name_or_path}.yaml"
    raise TaskError(
        f"there is no task {name_or_path!r}{near(name_or_path, known)}; expected the path of a "
        f"YAML file or one of {', '.join(known)}."
    )


def _special(for_data: Any, spec: Any, where: str) -> dict[str, Any]:
    """What the file says for these data."""
    if not isinstance(for_data, dict) or not all(isinstance(v, dict) for v in for_data.values()):
        raise ConfigError(f"{where}, for_data: expected a mapping from data to fields of the task.")
    for kind in for_data:
        if kind not in DATA_KINDS:
            raise ConfigError(
                f"{where}, for_data: found {kind!r}{near(kind, DATA_KINDS)}; "
                f"expected one of {', '.join(DATA_KINDS)}."
            )
    return dict(for_data.get(str(spec).partition(":")[0], {}))
