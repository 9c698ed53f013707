"""The placement of a mechanism: which layers of a model hold it, and what the other layers hold.

The other layers hold attention that may have fewer key heads or a window (``Rest``). A
file writes a placement as one of the words ``all``, ``first`` and ``alternate``, or as the fields
of ``Placement``:

    {"every": 4, "count": 3, "rest": "rope:window=16,global_tokens=1"}
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, PlainSerializer, StrictInt

from nas.common.config import describe, parse_yaml
from nas.common.errors import ConfigError, GenomeError
from nas.genome.options import GlobalTokens, HeadLabel, Visibility, Window

MAX_PERIOD: Final = 1024  # layers
STANDARD: Final = "mha"  # the name of standard attention, the default reference


@dataclass(frozen=True, slots=True)
class Rest:
    """The attention in the layers that do not hold the mechanism: a named mechanism with changes.

    Its text is that of a named mechanism with changed fields, such as ``mha:window=16``.
    """

    kv_heads: HeadLabel = "all"
    window: Window = None
    global_tokens: GlobalTokens = 0
    name: str = STANDARD

    def __str__(self) -> str:
        plain = asdict(Rest(name=self.name))
        changes = [f"{k}={v}" for k, v in asdict(self).items() if v != plain[k]]
        return f"{self.name}:{','.join(changes)}" if changes else self.name

    @property
    def visibility(self) -> Visibility:
        """The mask of the attention."""
        return Visibility(self.window, self.global_tokens)


def _fields_of_rest(value: Any) -> Any:
    from nas.genome.genome import Genome  # these import this module
    from nas.genome.mechanisms import MECHANISMS

    if isinstance(value, Rest):
        return value
    name, _, changes = str(value).partition(":")
    with suppress(ConfigError):
        if name in MECHANISMS and MECHANISMS[name].genome == Genome(MECHANISMS[name].genome.nodes):
            return parse_yaml(f"{{{changes.replace('=', ': ')}}}", "rest") | {"name": name}
    raise ValueError(
        f"found {describe(value)}; expected a named mechanism that has the projections of mha in "
        "all layers, such as rope, or with fields, 'rope:kv_heads=1/4,window=16,global_tokens=1'"
    )


@dataclass(frozen=True, slots=True)
class Placement:
    """The layers of a model that hold the mechanism, numbered from 0, and what the others hold.

    In every ``every`` layers, ``count`` successive layers hold the mechanism, beginning with layer
    ``offset``; the pattern also extends to the layers before. If ``every`` is None, it does not
    repeat. ValueError is raised if ``count`` or ``offset`` does not fit into a period.
    """

    every: Annotated[StrictInt, Field(ge=1, le=MAX_PERIOD)] | None = 1
    count: Annotated[StrictInt, Field(ge=1, le=MAX_PERIOD)] = 1
    offset: Annotated[StrictInt, Field(ge=0, lt=MAX_PERIOD)] = 0
    rest: Annotated[Rest, BeforeValidator(_fields_of_rest), PlainSerializer(str)] = Rest()

    def __post_init__(self) -> None:
        if self.every is not None and (self.count > self.every or self.offset >= self.every):
            raise ValueError(
                f"found count {self.count} and offset {self.offset}; expected a count of at most "
                f"every and an offset below it, which is {self.every}"
            )

    def __str__(self) -> str:
        """The word of a placement that has one, or a phrase such as ``3 of every 4 layers``."""
        plain = self.plain()
        if isinstance(plain, str):
            return plain
        last = self.offset + self.count - 1
        if self.every is None:
            words = [f"layers {self.offset} to {last}" if self.count > 1 else f"layer {last}"]
        else:
            words = [f"{self.count} of every {self.every} layers"]
            words += [f"offset {self.offset}"] if self.offset else []
        return ", ".join([*words, *([f"rest {self.rest}"] if self.rest != Rest() else [])])

    def plain(self) -> str | dict[str, Any]:
        """Return the JSON form: one of ``PLACEMENTS``, or the fields that differ from defaults."""
        for name, placement in PLACEMENTS.items():
            if self == placement:
                return name
        values = self.to_mapping()
        return {name: value for name, value in values.items() if value != _DEFAULTS[name]}

    def to_mapping(self) -> dict[str, Any]:
        """Return all fields by name, with the text of ``rest``."""
        return {**asdict(self), "rest": str(self.rest)}

    def layers(self, depth: int) -> tuple[int, ...]:
        """Return the indices of the layers with the mechanism; raise GenomeError if none exists."""
        every = self.every or max(depth, self.offset + self.count)
        layers = tuple(i for i in range(depth) if (i - self.offset) % every < self.count)
        if not layers:
            raise GenomeError(
                f"placement ({self}) selects none of {depth} layers; expected an offset below "
                f"{depth}."
            )
        return layers

    def simplified(self, depth: int | None = None) -> Placement:
        """Return the normal form, equal for placements of the same layers of ``depth``, or of all.

        GenomeError is raised if no layer is selected.
        """
        if self.every == self.count:
            return ALL
        return self if depth is None else _simplified(self, depth)


@lru_cache(maxsize=1024)
def _simplified(placement: Placement, depth: int) -> Placement:
    layers = placement.layers(depth)
    if len(layers) == depth:
        return ALL
    candidates = (*PLACEMENTS.values(), *_patterns(layers, depth))
    simplest = next(each for each in candidates if each.layers(depth) == layers)
    return replace(simplest, rest=placement.rest)


def _patterns(layers: tuple[int, ...], depth: int) -> Iterator[Placement]:
    for every in range(2, depth + 1):
        held = {layer for layer in layers if layer < every}
        starts = [layer for layer in held if (layer - 1) % every not in held]
        if len(starts) == 1:
            yield Placement(every, len(held), starts[0])


ALL: Final = Placement()
PLACEMENTS: Final = {"all": ALL, "first": Placement(every=None), "alternate": Placement(every=2)}
_DEFAULTS: Final = ALL.to_mapping()


def _named(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value not in PLACEMENTS:
        words = ", ".join(map(repr, PLACEMENTS))
        raise ValueError(
            f"found {describe(value)}; expected one of {words}, or a mapping of "
            f"{', '.join(_DEFAULTS)}"
        )
    return PLACEMENTS[value]


PlacementField = Annotated[
    Placement, BeforeValidator(_named), PlainSerializer(lambda placement: placement.plain())
]
