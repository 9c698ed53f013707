"""Search spaces: the primitives and choices of a search, as data.

A space lists primitives with parameter values, choices of projections, placements and windows, the
policy that genomes must obey, the mechanisms of the first population, objectives and task.
``causal: true`` excludes primitives that see later tokens; ``context`` is the number of cached
tokens for decoding costs. Only searches are limited to a space.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, replace
from itertools import islice, product
from typing import Any, Final

from pydantic import ConfigDict, Field, StrictInt, field_validator

from nas.common.config import Frozen, Name, find_named, near, read_model
from nas.common.errors import GenomeError
from nas.genome import (
    FLAGS,
    LABELS,
    PLACEMENTS,
    Genome,
    ParamValue,
    Projections,
    Visibility,
    check_visibility,
)
from nas.genome.primitives import check_params, get

FOLDER: Final = "search_spaces"
Labels = tuple[bool | str, ...]
MaskChoices = tuple[StrictInt | None, ...]
Choices = dict[str, tuple[ParamValue, ...]]  # values by parameter of a primitive
MAX_CONTEXT: Final = 2**30
MAX_COMBINATIONS: Final = 20_000  # combinations of a primitive's parameters that are tried


class Nodes(Frozen):
    """Limits on the graph."""

    max: int = Field(ge=3, le=64)


class TaskChoice(Frozen):
    """The task to train on; further keys override fields of the task."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str = "vit-cifar10"
    data: str | None = None

    @property
    def overrides(self) -> dict[str, Any]:
        """The task's fields that the space sets."""
        return dict(self.model_extra or {})


class SearchSpace(Frozen):
    """A search space; see the module docstring and search_spaces/."""

    name: Name
    about: str = ""
    policy: str = "score_normalize_aggregate"
    nodes: Nodes
    primitives: dict[str, Choices]
    projections: dict[str, Labels] = {}
    placement: tuple[str, ...] = ("all",)
    visibility: dict[str, MaskChoices] = {}
    causal: bool = False
    context: StrictInt | None = Field(default=None, ge=1, le=MAX_CONTEXT)
    mechanisms: tuple[str, ...] = ()
    objectives: tuple[str, ...] = Field(default=("quality", "macs"), min_length=1)
    task: TaskChoice = TaskChoice()

    @field_validator("primitives", mode="before")
    @classmethod
    def _empty_means_defaults(cls, value: Any) -> Any:
        """Read ``softmax:`` without a value as ``softmax: {}``."""
        return {k: v or {} for k, v in value.items()} if isinstance(value, dict) else value

    @field_validator("primitives")
    @classmethod
    def _primitives_exist(cls, value: dict[str, Choices]) -> dict[str, Choices]:
        if not value:
            raise ValueError("the space has no primitives; expected at least one of each role")
        try:
            return {op: _accepted(op, choices) for op, choices in value.items()}
        except GenomeError as error:
            raise ValueError(str(error)) from None

    @field_validator("projections")
    @classmethod
    def _projections_exist(cls, value: dict[str, Labels]) -> dict[str, Labels]:
        for name, choices in value.items():
            allowed: Labels = (True, False) if name in FLAGS else LABELS.get(name, ())
            if not allowed:
                expected = (*FLAGS, *LABELS)
                raise ValueError(f"unknown projection field {name!r}{near(name, expected)}")
            _check_choices(name, choices, allowed)
        return value

    @field_validator("placement")
    @classmethod
    def _placements_exist(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        _check_choices("placement", value, PLACEMENTS)
        return value

    @field_validator("visibility")
    @classmethod
    def _visibilities_exist(cls, value: dict[str, MaskChoices]) -> dict[str, MaskChoices]:
        names = [f.name for f in fields(Visibility)]
        for name, choices in value.items():
            if name not in names:
                raise ValueError(f"unknown visibility field {name!r}{near(name, names)}")
            if not choices:
                raise ValueError(f"{name} has no choices; expected at least one")
            for choice in choices:
                check_visibility(name, choice)
        return value

    def choices(self, field: str) -> tuple[Any, ...]:
        """The choices of a field of the projections; without an entry, only the field's default."""
        return self.projections.get(field, (getattr(Projections(), field),))

    def visibility_choices(self, field: str) -> tuple[Any, ...]:
        """The choices of a field of the mask; without an entry, only the field's default."""
        return self.visibility.get(field, (getattr(Visibility(), field),))

    def excludes(self, genome: Genome) -> str | None:
        """Why a genome in normal form is not in this space; None if it is."""
        if len(genome.nodes) > self.nodes.max:
            return f"has {len(genome.nodes)} nodes; the space allows {self.nodes.max}"
        for node in genome.nodes:
            if node.op not in self.primitives:
                return f"uses {node.op}, which the space does not have"
            for name, value in get(node.op).full(node.param_dict()).items():
                allowed = self.param_choices(node.op, name)
                if value not in allowed and name not in get(node.op).derived:
                    return f"uses {node.op} with {name} {value!r}; the space has {list(allowed)}"
            if not self.allows(node.op, node.param_dict()):
                return f"uses {node.op}, which sees later tokens; the space is causal"
        if genome.placement not in self.placement:
            return f"has placement {genome.placement!r}; the space has {list(self.placement)}"
        return self._excludes_visibility(genome.visibility) or self._excludes_projections(genome)

    def param_choices(self, op: str, name: str) -> tuple[ParamValue, ...]:
        """The choices of a parameter; without an entry, only the parameter's default."""
        return self.primitives[op].get(name, (get(op).parameters[name].default,))

    def allows(self, op: str, params: Mapping[str, ParamValue]) -> bool:
        """Whether these parameters are valid together, and causal in a causal space."""
        primitive = get(op)
        full = primitive.full(params)
        try:
            primitive.check(full)
        except ValueError:
            return False
        return not self.causal or primitive.is_causal_safe(full)

    def combinations(self, op: str) -> Iterator[dict[str, ParamValue]]:
        """The valid combinations among the first ``MAX_COMBINATIONS`` of all choices."""
        choices = {name: dict.fromkeys(self.param_choices(op, name)) for name in get(op).parameters}
        for values in islice(product(*choices.values()), MAX_COMBINATIONS):
            params = dict(zip(choices, values, strict=True))
            if self.allows(op, params):
                yield params

    def _excludes_visibility(self, visibility: Visibility) -> str | None:
        for name, value in asdict(visibility).items():
            choices, is_unread = self.visibility_choices(name), visibility == Visibility()
            if value not in choices and not (is_unread and name != "window"):
                return f"has {name} {value!r}; the space has {list(choices)}"
        return None

    def _excludes_projections(self, genome: Genome) -> str | None:
        used = {ref for node in genome.nodes for ref in node.inputs if isinstance(ref, str)}
        around = genome.projections
        # The normal form may exchange queries and keys.
        mirrored = replace(around, has_wq=around.has_wk, has_wk=around.has_wq)
        fault = self._outside(around, used)
        return fault if fault and self._outside(mirrored, used) else None

    def _outside(self, projections: Projections, used: set[str]) -> str | None:
        for name in (*FLAGS, *LABELS):
            value = getattr(projections, name)
            is_unread = name in FLAGS and name != "has_wo" and name[-1] not in used
            is_default = name in LABELS and value == getattr(Projections(), name)
            if value not in self.choices(name) and not (is_unread or is_default):
                return f"has {name} {value!r}; the space has {list(self.choices(name))}"
        return None


def load_space(name_or_path: str) -> SearchSpace:
    """Read a space by path or by name.

    Raises:
        ConfigError: the file cannot be read or contradicts the primitives.
    """
    return read_model(find_named(name_or_path, FOLDER), SearchSpace)


def _accepted(op: str, choices: Choices) -> Choices:
    """The choices in normal form; GenomeError for a value outside its domain."""
    primitive, result = get(op, "primitives"), {}
    for name, values in choices.items():
        if not values:
            raise GenomeError(f"{op}, {name}: has no choices; expected at least one")
        if name not in primitive.parameters:
            check_params(op, {name: values[0]}, "primitives")
        try:
            result[name] = tuple(primitive.parameters[name].accept(v) for v in values)
        except ValueError as error:
            raise GenomeError(f"{op}, {name}: {error}") from None
    return result


def _check_choices(name: str, choices: Labels, allowed: Labels) -> None:
    if not choices:
        raise ValueError(f"{name} has no choices; expected at least one of {list(allowed)}")
    for value in choices:
        if value not in allowed or isinstance(value, bool) != isinstance(allowed[0], bool):
            raise ValueError(f"{name}: found {value!r}; expected some of {list(allowed)}")
