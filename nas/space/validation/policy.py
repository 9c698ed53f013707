"""Policies: path rules over the roles in a genome, as data.

    - {name: weights_path, to: aggregate.weights, from: input, match: "transform* score normalize"}
    - {name: values_from, to: aggregate.values, some: input.v}
    - {name: values_only, to: aggregate.values, none: input.q}

A path is the sequence of nodes between a source and a place, both ends excluded. A rule with
``from`` requires that every path matches, with ``some`` that at least one path does, with ``none``
that no path does. Without ``match``, every path matches. A place is ``output``, a role or a
primitive, or one of its ports; a source is ``input`` (any stream, or a node without inputs) or one
stream. ``nas.space.validation.automaton`` defines the expressions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from nas.common.config import Frozen, Name, describe, find_named, near, read_model, shortened
from nas.common.errors import PolicyError
from nas.genome import STREAMS, Ref
from nas.genome.primitives import Role, Signature, get, names
from nas.space.validation.automaton import Automaton, Budget, Symbol, compile_pattern

FOLDER: Final = "validators"
Quantifier = Literal["every", "some", "none"]


class RuleFile(Frozen):
    """A rule as written in the file."""

    name: Name
    to: str
    from_: str | None = Field(default=None, alias="from")
    some: str | None = None
    none: str | None = None
    match: str | None = None

    @property
    def quantifier(self) -> Quantifier:
        """How many of the paths must match."""
        return "every" if self.from_ is not None else "some" if self.some is not None else "none"

    @property
    def source(self) -> str:
        """Where the paths begin."""
        return self.from_ or self.some or self.none or ""

    @model_validator(mode="after")
    def _is_complete(self) -> RuleFile:
        if (self.from_, self.some, self.none).count(None) != 2:
            raise ValueError(f"rule {self.name!r} needs exactly one of 'from', 'some', 'none'")
        if self.from_ is not None and self.match is None:
            raise ValueError(f"rule {self.name!r} has 'from' and so needs 'match'")
        return self


class PolicyFile(Frozen):
    """A policy as written in the file; ``arity`` sets input counts of roles or primitives."""

    name: Name
    about: str = ""
    types: bool = True
    arity: dict[str, Annotated[int, Field(ge=0)]] = {}
    rules: tuple[RuleFile, ...]


@dataclass(frozen=True)
class Rule:
    """A compiled rule: ``word`` and ``port`` name the place (None: the output)."""

    name: str
    place: str
    word: str | None
    port: str | None
    quantifier: Quantifier
    source: str
    automaton: Automaton

    def starts(self, ref: Ref | None) -> bool:
        """Whether paths begin at a stream, or (None) at a node without inputs."""
        return self.source == "input" or (ref is not None and self.source == f"input.{ref}")

    def slot(self, symbol: Symbol, signature: Signature) -> int | None:
        """The index of the input that this rule constrains; None if it constrains no input here.

        Args:
            symbol: the words of the node.
        """
        if self.word not in symbol:
            return None
        ports = [port.name for port in signature.inputs]
        return ports.index(self.port) if self.port in ports else None


@dataclass(frozen=True)
class Policy:
    """A compiled policy; see ``nas.space.validation.validate``."""

    file: PolicyFile
    rules: tuple[Rule, ...]

    @property
    def name(self) -> str:
        """The policy's name."""
        return self.file.name


def load_policy(name_or_path: str) -> Policy:
    """Read and compile a policy by path or by name.

    Raises:
        ConfigError, PolicyError: the file cannot be read, or a rule is malformed.
    """
    path = find_named(name_or_path, FOLDER)
    return compile_policy(read_model(path, PolicyFile), path)


def compile_policy(file: PolicyFile, path: Path | str) -> Policy:
    """Compile a policy's rules; errors name the file and the rule."""
    for name, count in Counter(rule.name for rule in file.rules).items():
        if count > 1:
            raise PolicyError(f"{path}: two rules are named {name!r}.")
    for word in file.arity:
        if word not in _words():
            raise PolicyError(
                f"{path}, arity: {shortened(word)!r} is neither a role nor a primitive"
                f"{near(word, _words())}."
            )
    # The alphabet: each primitive in each of its roles.
    symbols = sorted({Symbol(n, s.role.value) for n in names() for s in get(n).signatures})
    budget = Budget()
    rules = (_compile(rule, f"{path}, rule {rule.name!r}", symbols, budget) for rule in file.rules)
    return Policy(file, tuple(rules))


def _words() -> frozenset[str]:
    """All words of patterns: the roles and the names of primitives."""
    return frozenset(names()) | {role.value for role in Role}


def _compile(rule: RuleFile, where: str, symbols: Sequence[Symbol], budget: Budget) -> Rule:
    sources = ("input", *(f"input.{stream}" for stream in STREAMS))
    if rule.source not in sources:
        raise PolicyError(
            f"{where}: the source is {describe(rule.source)}; expected one of {', '.join(sources)}."
        )
    word, port = _place(rule.to, where)
    match = ".*" if rule.match is None else rule.match
    try:
        automaton = compile_pattern(match, symbols, _words(), budget)
    except ValueError as error:
        raise PolicyError(f"{where}, match {shortened(match)!r}: {error}.") from None
    return Rule(rule.name, rule.to, word, port, rule.quantifier, rule.source, automaton)


def _place(to: str, where: str) -> tuple[str | None, str | None]:
    if to == "output":
        return None, None
    word, _, port = to.partition(".")
    if word not in _words():
        raise PolicyError(
            f"{where}: the place {shortened(to)!r} is neither 'output' nor a role or primitive"
            f"{near(word, _words())}."
        )
    readings = (s for n in names() for s in get(n).signatures if word in (n, s.role.value))
    ports = sorted({p.name for s in readings for p in s.inputs})
    if port not in ports:
        raise PolicyError(
            f"{where}: {word} has no port {port!r}; expected {word}. with one of "
            f"{', '.join(ports)}{near(port, ports)}."
        )
    return word, port
