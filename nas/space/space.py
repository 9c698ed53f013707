"""Search spaces: the primitives and choices of a search, as data.

A space limits only searches; other uses of the package accept any genome.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import product
from typing import Annotated, Any, Final, TypeVar, cast, get_type_hints

from pydantic import ConfigDict, Field, GetPydanticSchema, StrictInt, field_validator
from typing_extensions import TypedDict

from nas.common.config import Frozen, Name, find_named, parse_model, read_model
from nas.common.errors import GenomeError, SpaceError
from nas.genome import (
    ALL,
    FLAGS,
    LABELS,
    Genome,
    ParamValue,
    Placement,
    PlacementField,
    Projections,
    Visibility,
)
from nas.genome.canonical import canonicalise, plain_placement
from nas.genome.mechanisms import NamedMechanism, mechanism
from nas.genome.primitives import check_params, full_params, get
from nas.space.rules import Policy, validate

FOLDER: Final = "search_spaces"
MAX_CONTEXT: Final = 2**30

_NO_MASK: Final = asdict(Visibility())
_DEFAULTS: Final = asdict(Projections()) | _NO_MASK

T = TypeVar("T")
Choices = Annotated[tuple[T, ...], Field(min_length=1)]


def _choices_of(form: type) -> GetPydanticSchema:
    any_choices: Any = Choices
    hints = get_type_hints(form, include_extras=True)
    fields = {name: any_choices[hint] for name, hint in hints.items()}
    choices = cast("Any", TypedDict)("choices", fields, total=False)
    choices.__pydantic_config__ = ConfigDict(extra="forbid")
    return GetPydanticSchema(lambda source, handler: handler(choices))


class Nodes(Frozen):
    """The largest number of nodes of a genome."""

    max: int = Field(ge=3, le=64)


class TaskChoice(Frozen):
    """The training task that a search space names; ``model_extra`` are fields that it overrides."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str = "vit-cifar10"
    data: str | None = None


class SearchSpace(Frozen):
    """A search space as written in a file of search_spaces/.

    Attributes:
        policy: name or path of the path rules that genomes must obey.
        primitives: choices of each primitive's parameters; a missing one has its default.
        causal: whether to exclude primitives with which a token sees later tokens.
        context: number of cached tokens for which decoding costs are computed.
        mechanisms: named mechanisms with which a search starts.
        region: limits of a mechanism in a front, by objective: for a metric a share of the way
            from the plain mean of all tokens (0) to the task's reference (1), for a cost a multiple
            of the reference's.
        target: name or path of a longer task, whose front a search is for; by default ``task``.
    """

    name: Name
    about: str = ""
    policy: str = "score_normalize_aggregate"
    nodes: Nodes
    primitives: Annotated[dict[str, dict[str, Choices[ParamValue]]], Field(min_length=1)]
    projections: Annotated[dict[str, tuple[Any, ...]], _choices_of(Projections)] = {}
    placement: Choices[PlacementField] = (ALL,)
    visibility: Annotated[dict[str, tuple[Any, ...]], _choices_of(Visibility)] = {}
    causal: bool = False
    context: StrictInt | None = Field(default=None, ge=1, le=MAX_CONTEXT)
    mechanisms: tuple[str, ...] = ()
    objectives: Choices[str] = ("quality", "macs")
    region: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]] = {}
    task: TaskChoice = TaskChoice()
    target: str | None = None

    @field_validator("primitives", mode="before")
    @classmethod
    def _empty_means_defaults(cls, value: Any) -> Any:
        # YAML reads "softmax:" as None.
        return {k: v or {} for k, v in value.items()} if isinstance(value, dict) else value

    @field_validator("placement", mode="before")
    @classmethod
    def _combine_patterns(cls, value: Any) -> Any:
        """Turn a mapping of the fields' choices into the list of all placements that exist."""
        if not isinstance(value, dict):
            return value
        lists = [v if isinstance(v, list) else [v] for v in value.values()]
        patterns = [dict(zip(value, values, strict=True)) for values in product(*lists)]
        if not (fitting := [pattern for pattern in patterns if _fits(pattern)]):
            raise ValueError(
                "found no combination in which count is at most every and offset is less than "
                "every; expected at least one"
            )
        return fitting

    @field_validator("placement")
    @classmethod
    def _merge_equal_placements(cls, value: tuple[Placement, ...]) -> tuple[Placement, ...]:
        return tuple(dict.fromkeys(plain_placement(placement) for placement in value))

    @field_validator("primitives")
    @classmethod
    def _normalise_parameters(cls, value: dict[str, Any]) -> dict[str, Any]:
        try:
            return {op: _accepted(op, choices) for op, choices in value.items()}
        except GenomeError as error:
            raise ValueError(str(error).removeprefix("primitives: ")) from None

    def asked(
        self, objectives: Sequence[str] | None, region: Mapping[str, float] | None
    ) -> SearchSpace:
        """Return the space with other objectives and another region, where they are given.

        Objectives without a region drop the limits of other objectives. A limit that is no positive
        number raises ConfigError.
        """
        changes: dict[str, Any] = {}
        if objectives is not None:
            changes["objectives"] = list(objectives)
            changes["region"] = {n: limit for n, limit in self.region.items() if n in objectives}
        if region is not None:
            changes["region"] = dict(region)
        if not changes:
            return self
        return parse_model(self.model_dump() | changes, SearchSpace, f"space {self.name}")

    def choices(self, field: str) -> tuple[Any, ...]:
        """Return the choices of a field of ``Projections`` or ``Visibility``."""
        choices = self.visibility if field in _NO_MASK else self.projections
        return choices.get(field, (_DEFAULTS[field],))

    def param_choices(self, op: str, name: str) -> tuple[ParamValue, ...]:
        """Return the choices of a primitive's parameter."""
        return self.primitives[op].get(name, (get(op).parameters[name].default,))

    def excludes(self, genome: Genome, depth: int | None = None) -> str | None:
        """Return why a genome in normal form (for ``depth`` layers) is not in the space, if so."""
        if len(genome.nodes) > self.nodes.max:
            return f"has {len(genome.nodes)} nodes; the space allows {self.nodes.max}"
        for node in genome.nodes:
            if node.op not in self.primitives:
                return f"uses {node.op}, which the space does not have"
            for name, value in full_params(node).items():
                allowed = self.param_choices(node.op, name)
                if value not in allowed and name not in get(node.op).derived:
                    return f"uses {node.op} with {name} {value!r}; the space has {list(allowed)}"
            if not self.allows(node.op, dict(node.params)):
                return f"uses {node.op}, which sees later tokens; the space is causal"
        if not self._has_placement(genome, depth):
            known = ", ".join(map(repr, map(str, self.placement)))
            return f"has placement {str(genome.placement)!r}; the space has {known}"
        for name, value in asdict(genome.visibility).items():
            has_effect = name == "window" or genome.visibility.window is not None
            if has_effect and value not in self.choices(name):
                return f"has {name} {value!r}; the space has {list(self.choices(name))}"
        around = genome.projections
        # The normal form may exchange queries and keys.
        mirrored = replace(around, has_wq=around.has_wk, has_wk=around.has_wq)
        streams = genome.streams()
        reasons = [self._excludes_projections(each, streams) for each in (around, mirrored)]
        return reasons[0] if all(reasons) else None

    def _has_placement(self, genome: Genome, depth: int | None) -> bool:
        for placement in self.placement:
            with suppress(GenomeError):  # it selects none of the layers
                if placement.simplified(depth) == genome.placement:
                    return True
        # The normal form places a mechanism that equals the rest in all layers.
        rests = (Genome((), placement=placement).rest() for placement in self.placement)
        return genome.placement == ALL and any(canonicalise(rest) == genome for rest in rests)

    def _excludes_projections(self, projections: Projections, streams: set[str]) -> str | None:
        for name in (*FLAGS, *LABELS):
            value = getattr(projections, name)
            is_unread = name in FLAGS and name != "has_wo" and name[-1] not in streams
            is_default = name in LABELS and value == _DEFAULTS[name]
            if value not in self.choices(name) and not (is_unread or is_default):
                return f"has {name} {value!r}; the space has {list(self.choices(name))}"
        return None

    def allows(self, op: str, params: Mapping[str, ParamValue]) -> bool:
        """Return whether parameters go together and, in a causal space, hide later tokens."""
        primitive, full = get(op), get(op).full(params)
        try:
            primitive.check(full)
        except ValueError:
            return False
        return not self.causal or primitive.is_causal_safe(full)

    def combinations(self, op: str) -> Iterator[dict[str, ParamValue]]:
        """Yield the allowed combinations of a primitive's parameters."""
        choices = {name: dict.fromkeys(self.param_choices(op, name)) for name in get(op).parameters}
        for values in product(*choices.values()):
            params = dict(zip(choices, values, strict=True))
            if self.allows(op, params):
                yield params


def load_space(name_or_path: str) -> SearchSpace:
    """Return the search space of a name or file; raise ConfigError if it is not valid."""
    return read_model(find_named(name_or_path, FOLDER), SearchSpace)


def seeds(
    space: SearchSpace, policy: Policy, is_causal: bool = False
) -> tuple[NamedMechanism, ...]:
    """Return the space's mechanisms, without those that see later tokens if either is causal.

    One that does not exist, or is not in the space, and breaches of path rules raise SpaceError.
    """
    seeded = []
    for each in space.placement:
        if each != ALL and (broken := validate(Genome((), placement=each).rest(), policy)):
            raise SpaceError(f"space {space.name}, rest {each.rest}: {broken[0].message}")
    for name in space.mechanisms:
        try:
            seed = mechanism(name)
        except GenomeError as error:
            raise SpaceError(f"space {space.name}, mechanisms: {error}") from None
        nodes = seed.genome.nodes
        is_safe = all(get(node.op).is_causal_safe(full_params(node)) for node in nodes)
        if not is_safe and (is_causal or space.causal):
            continue
        reason = next((v.message for v in validate(seed.genome, policy)), None)
        # The mechanism as defined, or its normal form, which has no projections of unread streams.
        if reason is None and space.excludes(seed.genome) is not None:
            reason = space.excludes(canonicalise(seed.genome))
        if reason is not None:
            raise SpaceError(f"space {space.name}, mechanisms: {name} {reason}.")
        seeded.append(seed)
    return tuple(seeded)


def _fits(pattern: Mapping[str, Any]) -> bool:
    every, count = pattern.get("every", 1), pattern.get("count", 1)
    offset = pattern.get("offset", 0)
    are_numbers = all(isinstance(number, int) for number in (every, count, offset))
    return not are_numbers or bool(every < 1 or (count <= every and offset < every))


def _accepted(op: str, choices: Mapping[str, tuple[ParamValue, ...]]) -> dict[str, Any]:
    """Return the choices with each value in normal form (4.0 for 4)."""
    primitive, accepted = get(op, "primitives"), {}
    for name, values in choices.items():
        if name not in primitive.parameters:
            check_params(op, {name: values[0]}, "primitives")
        try:
            accepted[name] = tuple(primitive.parameters[name].accept(v) for v in values)
        except ValueError as error:
            raise GenomeError(f"{op}, {name}: {error}") from None
    return accepted
