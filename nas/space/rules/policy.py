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

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, model_validator

from nas.common.config import Frozen, Name, describe, find_named, near, read_model, shortened
from nas.common.errors import PolicyError
from nas.genome import STREAMS, Ref
from nas.genome.primitives import Role, Signature, get, names
from nas.space.rules.automaton import Automaton, Symbol, compile_pattern

FOLDER: Final = "validators"


class RuleFile(Frozen):
    """A path rule as written in a policy file; the module docstring defines the keys."""

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

    @model_validator(mode="after")
    def _is_complete(self) -> RuleFile:
        if (self.from_, self.some, self.none).count(None) != 2:
            raise ValueError(f"rule {self.name!r} needs exactly one of 'from', 'some', 'none'")
        if self.from_ is not None and self.match is None:
            raise ValueError(f"rule {self.name!r} has 'from' and so needs 'match'")
        return self


class PolicyFile(Frozen):
    """A policy as written in a file.

    ``types`` is whether genomes must type-check, ``arity`` the required number of operands of roles
    or primitives.
    """

    name: Name
    about: str = ""
    types: bool = True
    arity: dict[str, Annotated[int, Field(ge=0)]] = {}
    rules: tuple[RuleFile, ...] = Field(max_length=64)


@dataclass(frozen=True)
class Rule:
    """A path rule whose expression has been compiled to an automaton.

    The paths end at the operand ``port`` of nodes with the primitive or role ``word``; both are
    None if the paths end at the output.
    """

    file: RuleFile
    word: str | None
    port: str | None
    automaton: Automaton

    @property
    def is_some(self) -> bool:
        """Whether one path suffices; else the rule is about all paths."""
        return self.file.some is not None

    @property
    def wanted(self) -> int:
        """The bit mask of the automaton states in which paths must end, all or one of them."""
        accepting = self.automaton.accepting
        return accepting if self.file.none is None else self.automaton.all_states & ~accepting

    def starts(self, ref: Ref | None) -> bool:
        """Return whether the rule's paths start at a stream, or (None) at a node without inputs."""
        return self.file.source in ("input", f"input.{ref}")

    def slot(self, symbol: Symbol, signature: Signature) -> int | None:
        """Return the index of the operand of a node at which this rule's paths end, if any."""
        if self.word not in symbol:
            return None
        ports = [port.name for port in signature.inputs]
        return ports.index(self.port) if self.port in ports else None


@dataclass(frozen=True)
class Policy:
    """A policy's file, and its rules compiled to automata."""

    file: PolicyFile
    rules: tuple[Rule, ...]

    @property
    def name(self) -> str:
        """The policy's name."""
        return self.file.name


def load_policy(name_or_path: str) -> Policy:
    """Return the policy of a name or file.

    Raises:
        ConfigError: the file cannot be read, or (PolicyError) a rule is malformed.
    """
    path = find_named(name_or_path, FOLDER)
    return compile_policy(read_model(path, PolicyFile), path)


def compile_policy(file: PolicyFile, path: Path | str) -> Policy:
    """Compile the rules of a policy.

    Raises:
        PolicyError: a rule is malformed; the message names ``path`` and the rule.
    """
    for name, count in Counter(rule.name for rule in file.rules).items():
        if count > 1:
            raise PolicyError(f"{path}: two rules are named {name!r}.")
    for word in file.arity:
        if word not in _words():
            raise PolicyError(
                f"{path}, arity: {shortened(word)!r} is neither a role nor a primitive"
                f"{near(word, _words())}."
            )
    symbols = sorted({Symbol(n, s.role.value) for n in names() for s in get(n).signatures})
    rules = (_compile(rule, f"{path}, rule {rule.name!r}", symbols) for rule in file.rules)
    return Policy(file, tuple(rules))


def _words() -> frozenset[str]:
    return frozenset(names()) | {role.value for role in Role}


def _compile(rule: RuleFile, where: str, symbols: Sequence[Symbol]) -> Rule:
    sources = ("input", *(f"input.{stream}" for stream in STREAMS))
    if rule.source not in sources:
        raise PolicyError(
            f"{where}: the source is {describe(rule.source)}; expected one of {', '.join(sources)}."
        )
    word, port = _place(rule.to, where)
    match = ".*" if rule.match is None else rule.match
    try:
        automaton = compile_pattern(match, symbols, _words())
    except ValueError as error:
        raise PolicyError(f"{where}, match {shortened(match)!r}: {error}.") from None
    return Rule(rule, word, port, automaton)


def _place(to: str, where: str) -> tuple[str | None, str | None]:
    if to == "output":
        return None, None
    word, _, port = to.partition(".")
    if word not in _words():
        raise PolicyError(
            f"{where}: the place {shortened(to)!r} is neither 'output' nor a role or primitive"
            f"{near(word, _words())}."
        )
    pairs = ((name, signature) for name in names() for signature in get(name).signatures)
    matching = (s for name, s in pairs if word in (name, s.role.value))
    ports = sorted({port.name for signature in matching for port in signature.inputs})
    if port not in ports:
        raise PolicyError(
            f"{where}: {word} has no port {port!r}; expected {word}. with one of "
            f"{', '.join(ports)}{near(port, ports)}."
        )
    return word, port
