"""Regular expressions over the nodes of a path, compiled to deterministic automata.

    ".* score (score | adjust)* normalize"

Each node of a path is one symbol. A word matches a node if it is the node's role or the name of its
primitive, and ``.`` matches any node. Operators are juxtaposition, ``|``, ``*``, ``+``, ``?`` and
parentheses. Sets of states are bit masks, so that one pass over a DAG follows all paths at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from nas.common.config import near, shortened

MAX_CHARACTERS: Final = 500  # of an expression
MAX_STATES: Final = 500  # of an automaton, which may have exponentially many
MAX_PARENTHESES: Final = 64


class Symbol(NamedTuple):
    """A symbol of the automata's alphabet: the primitive and the role of a node."""

    op: str
    role: str


@dataclass(frozen=True)
class Automaton:
    """A deterministic automaton with the states 0 (the start), 1, 2, and so on."""

    accepting: int  # bit mask of the accepting states
    steps: dict[Symbol, tuple[int, ...]]  # the next states of all states, by symbol
    _masks: dict[tuple[int, Symbol], int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def all_states(self) -> int:
        """The bit mask of all states."""
        return (1 << len(next(iter(self.steps.values())))) - 1

    def advance(self, mask: int, symbol: Symbol) -> int:
        """Return the bit mask of the states that ``symbol`` reaches from those in ``mask``."""
        result = self._masks.get((mask, symbol))
        if result is None:
            result = 0
            for state, after in enumerate(self.steps[symbol]):
                if mask >> state & 1:
                    result |= 1 << after
            self._masks[mask, symbol] = result
        return result

    def retreat(self, mask: int, symbol: Symbol) -> int:
        """Return the bit mask of the states from which ``symbol`` leads to one in ``mask``."""
        return sum(1 << s for s, after in enumerate(self.steps[symbol]) if mask >> after & 1)


def compile_pattern(pattern: str, symbols: Sequence[Symbol], words: Set[str]) -> Automaton:
    """Return the automaton of an expression, by Glushkov's and the subset construction.

    ValueError is raised if it is malformed or too large, or has a word that is not in ``words``.
    """
    parsed = _Parser(pattern, words)
    # Symbols that match the same words of the expression lead to the same states.
    kinds = {symbol: frozenset({*parsed.labels}.intersection(symbol)) for symbol in symbols}
    states = {frozenset({0}): 0}
    queue, table = list(states), []
    for subset in queue:
        row: dict[frozenset[str], int] = {}
        followers = {after for position in subset for after in parsed.follow[position]}
        for kind in dict.fromkeys(kinds.values()):
            after = frozenset(p for p in followers if parsed.labels[p] in (".", *kind))
            if after not in states:
                states[after] = len(states)
                queue.append(after)
            row[kind] = states[after]
        table.append(row)
        if len(states) > MAX_STATES:
            raise ValueError(f"its automaton has more than {MAX_STATES} states; expected fewer")
    accepting = sum(1 << number for subset, number in states.items() if subset & parsed.final)
    steps = {symbol: tuple(row[kind] for row in table) for symbol, kind in kinds.items()}
    return Automaton(accepting, steps)


class _Part(NamedTuple):
    """A part of an expression: whether it matches an empty path, and its first and last words."""

    is_optional: bool
    first: frozenset[int]
    last: frozenset[int]


class _Parser:
    """The words of an expression by position; 0 is the start, ``final`` has the last positions.

    ``follow`` has, for each position, the positions of the words that may come next.
    """

    def __init__(self, pattern: str, words: Set[str]) -> None:
        if len(pattern) > MAX_CHARACTERS or pattern.count("(") > MAX_PARENTHESES:
            raise ValueError(
                f"expected at most {MAX_CHARACTERS} characters and {MAX_PARENTHESES} parentheses"
            )
        self.words, self.labels = words, [""]
        self.tokens, self.at = re.findall(r"\w+|\S", pattern), 0
        self.follow: list[frozenset[int]] = [frozenset()]
        start = frozenset({0})
        self.final = self._joined(_Part(False, start, start), self._alternatives()).last
        if self.at < len(self.tokens):
            raise ValueError(f"{self.tokens[self.at]!r} stands where a word was expected")

    def _peek(self) -> str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def _alternatives(self) -> _Part:
        part = self._sequence()
        while self._peek() == "|":
            self.at += 1
            other = self._sequence()
            is_optional = part.is_optional or other.is_optional
            part = _Part(is_optional, part.first | other.first, part.last | other.last)
        return part

    def _sequence(self) -> _Part:
        part = _Part(True, frozenset(), frozenset())
        while self._peek() not in (None, "|", ")"):
            part = self._joined(part, self._repeated())
        return part

    def _joined(self, one: _Part, two: _Part) -> _Part:
        for position in one.last:
            self.follow[position] |= two.first
        first = one.first | two.first if one.is_optional else one.first
        last = one.last | two.last if two.is_optional else two.last
        return _Part(one.is_optional and two.is_optional, first, last)

    def _repeated(self) -> _Part:
        part = self._atom()
        while (sign := self._peek()) in ("*", "+", "?"):
            self.at += 1
            if sign != "?":
                self._joined(part, part)
            part = part._replace(is_optional=part.is_optional or sign != "+")
        return part

    def _atom(self) -> _Part:
        sign = self.tokens[self.at]
        self.at += 1
        if sign == "(":
            inside = self._alternatives()
            if self._peek() != ")":
                raise ValueError("a parenthesis is not closed")
            self.at += 1
            return inside
        if sign != "." and sign not in self.words:
            raise ValueError(
                f"{shortened(sign)!r} is neither a role nor a primitive"
                f"{near(sign, sorted(self.words))}"
            )
        self.labels.append(sign)
        self.follow.append(frozenset())
        position = frozenset({len(self.labels) - 1})
        return _Part(False, position, position)
