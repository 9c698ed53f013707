"""Policies: rules about the paths in a genome's graph, as data.

    - {name: weights_path, to: aggregate.weights, from: input, match: "transform* score normalize"}
    - {name: values_from, to: aggregate.values, some: input.v}
    - {name: values_only, to: aggregate.values, none: input.q}

A rule is about the paths from a source to the place ``to``: ``output``, or an operand of a
primitive or role, such as ``aggregate.values``. A path is a sequence of nodes, without the stream
at its start and the node whose operand is the place. The source is ``input`` (any stream, or a node
without inputs) or one stream, such as ``input.v``. Its key is ``from`` if all paths must match the
expression ``match`` (see ``nas.space.rules.automaton``), ``some`` if at least one path must, and
``none`` if no path may. Without ``match``, every path matches.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Final

from pydantic import Field, field_validator, model_validator

from nas.common.config import Frozen, Name, describe, find_named, near, read_model, shortened
from nas.genome import STREAMS, Ref
from nas.genome.primitives import Role, Signature, get, names
from nas.space.rules.automaton import Automaton, Symbol, compile_pattern

FOLDER: Final = "validators"
SOURCES: Final = ("input", *(f"input.{stream}" for stream in STREAMS))


class Rule(Frozen):
    """A path rule; the docstring of the module defines the keys."""

    name: Name
    to: str
    from_: str | None = Field(default=None, alias="from")
    some: str | None = None
    none: str | None = None
    match: str | None = None

    @property
    def source(self) -> str:
        """The stream at which the rule's paths start, such as "input.v"; "input" for any."""
        return self.from_ or self.some or self.none or ""

    @property
    def is_some(self) -> bool:
        """Whether one path suffices; else the rule is about all paths."""
        return self.some is not None

    @property
    def word(self) -> str | None:
        """The primitive or role at whose operand ``port`` the paths end; None for the output."""
        return None if self.to == "output" else self.to.partition(".")[0]

    @property
    def port(self) -> str:
        """The name of the operand at which the paths end."""
        return self.to.partition(".")[2]

    @cached_property
    def automaton(self) -> Automaton:
        """The automaton of ``match``."""
        symbols = sorted({Symbol(n, s.role.value) for n in names() for s in get(n).signatures})
        return compile_pattern(".*" if self.match is None else self.match, symbols, _words())

    @cached_property
    def wanted(self) -> int:
        """The bit mask of the automaton states in which paths must end, all or one of them."""
        accepting = self.automaton.accepting
        return accepting if self.none is None else self.automaton.all_states & ~accepting

    def starts(self, ref: Ref | None) -> bool:
        """Return whether the rule's paths start at a stream, or (None) at a node without inputs."""
        return self.source in ("input", f"input.{ref}")

    def slot(self, symbol: Symbol, signature: Signature) -> int | None:
        """Return the index of the operand of a node at which this rule's paths end, if any."""
        if self.word not in symbol:
            return None
        ports = [port.name for port in signature.inputs]
        return ports.index(self.port) if self.port in ports else None

    @model_validator(mode="after")
    def _is_valid(self) -> Rule:
        where = f"rule {self.name!r}"
        if (self.from_, self.some, self.none).count(None) != 2:
            raise ValueError(f"{where} needs exactly one of 'from', 'some', 'none'")
        if self.from_ is not None and self.match is None:
            raise ValueError(f"{where} has 'from' and so needs 'match'")
        if self.source not in SOURCES:
            raise ValueError(
                f"{where}: the source is {describe(self.source)}; expected one of "
                f"{', '.join(SOURCES)}"
            )
        if self.word is not None:
            pairs = ((name, signature) for name in names() for signature in get(name).signatures)
            places = {
                f"{word}.{port.name}"
                for name, signature in pairs
                for word in (name, signature.role.value)
                for port in signature.inputs
            }
            if self.to not in places:
                raise ValueError(
                    f"{where}: there is no place {shortened(self.to)!r}{near(self.to, places)}; "
                    "expected output, or a role or primitive and its port, such as aggregate.values"
                )
        try:
            assert self.automaton
        except ValueError as error:
            raise ValueError(f"{where}, match {shortened(self.match or '')!r}: {error}") from None
        return self


class Policy(Frozen):
    """Path rules for genomes."""

    name: Name
    about: str = ""
    types: bool = True  # whether genomes must type-check
    arity: dict[str, Annotated[int, Field(ge=0)]] = {}  # numbers of operands, by role or primitive
    rules: tuple[Rule, ...] = Field(max_length=64)

    @field_validator("arity")
    @classmethod
    def _has_known_words(cls, value: dict[str, int]) -> dict[str, int]:
        for word in value:
            if word not in _words():
                hint = near(word, _words())
                raise ValueError(f"{shortened(word)!r} is neither a role nor a primitive{hint}")
        return value


def load_policy(name_or_path: str) -> Policy:
    """Return the policy of a name or file; raise ConfigError if it is unreadable or malformed."""
    return read_model(find_named(name_or_path, FOLDER), Policy)


def _words() -> frozenset[str]:
    return frozenset(names()) | {role.value for role in Role}
