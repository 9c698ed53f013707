"""Regular expressions over the nodes of a path, compiled to deterministic automata.

    ".* score (score | adjust)* normalize"

Each node of a path is one symbol. A word matches a node if it is the node's role or the name of its
primitive, and ``.`` matches any node. Operators are juxtaposition, ``|``, ``*``, ``+``, ``?`` and
parentheses. Sets of automaton states are bit masks, so that one pass over a DAG follows all paths
at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from nas.common.config import near, shortened

MAX_CHARACTERS: Final = 500  # of an expression
MAX_STATES: Final = 500  # of an automaton, which may have exponentially many
MAX_PARENTHESES: Final = 64
Fragment = tuple[int, int]  # start and end state of a part of an expression


class Symbol(NamedTuple):
    """A symbol of the automata's alphabet: the primitive and the role of a node."""

    op: str
    role: str


@dataclass(frozen=True)
class Automaton:
    """A deterministic automaton with the states 0 (the start), 1, 2, and so on.

    ``accepting`` is the bit mask of the accepting states; ``steps`` has, for each symbol, the tuple
    of the next states of all states.
    """

    accepting: int
    steps: dict[Symbol, tuple[int, ...]]
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
    """Return the automaton of an expression, by Thompson's and the subset construction.

    Raises:
        ValueError: the expression is malformed or too large, or has a word not in ``words``.
    """
    nfa = _Nfa(pattern, words)
    # Symbols that match the same words of the expression lead to the same states.
    used = set(nfa.tokens)
    kinds = {symbol: frozenset(used.intersection(symbol)) for symbol in symbols}
    states = {nfa.closure({nfa.start}): 0}
    queue, table = list(states), []
    for subset in queue:
        row: dict[frozenset[str], int] = {}
        for kind in dict.fromkeys(kinds.values()):
            after = nfa.closure(nfa.move(subset, kind))
            if after not in states:
                states[after] = len(states)
                queue.append(after)
            row[kind] = states[after]
        table.append(row)
        if len(states) > MAX_STATES:
            raise ValueError(f"its automaton has more than {MAX_STATES} states; expected fewer")
    accepting = sum(1 << number for subset, number in states.items() if nfa.final in subset)
    steps = {symbol: tuple(row[kind] for row in table) for symbol, kind in kinds.items()}
    return Automaton(accepting, steps)


class _Nfa:
    """The nondeterministic automaton of an expression, built while the expression is parsed.

    The label of an edge is a word, "." for any symbol, or None if the edge consumes no symbol.
    """

    def __init__(self, pattern: str, words: Set[str]) -> None:
        if len(pattern) > MAX_CHARACTERS or pattern.count("(") > MAX_PARENTHESES:
            raise ValueError(
                f"expected at most {MAX_CHARACTERS} characters and {MAX_PARENTHESES} parentheses"
            )
        self.words, self.edges = words, list[list[tuple[str | None, int]]]()
        self.tokens, self.at = re.findall(r"\w+|\S", pattern), 0
        self.start, self.final = self._alternatives()
        if self.at < len(self.tokens):
            raise ValueError(f"{self.tokens[self.at]!r} stands where a word was expected")

    def closure(self, states: Iterable[int]) -> frozenset[int]:
        reached = set(states)
        stack = list(reached)
        while stack:
            for word, after in self.edges[stack.pop()]:
                if word is None and after not in reached:
                    reached.add(after)
                    stack.append(after)
        return frozenset(reached)

    def move(self, states: Set[int], kind: Set[str]) -> set[int]:
        edges = (edge for state in states for edge in self.edges[state])
        return {after for word, after in edges if word == "." or word in kind}

    def _state(self) -> int:
        self.edges.append([])
        return len(self.edges) - 1

    def _peek(self) -> str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def _around(self, *inside: Fragment) -> Fragment:
        start, final = self._state(), self._state()
        for begin, end in inside:
            self.edges[start].append((None, begin))
            self.edges[end].append((None, final))
        return start, final

    def _alternatives(self) -> Fragment:
        first = self._sequence()
        while self._peek() == "|":
            self.at += 1
            first = self._around(first, self._sequence())
        return first

    def _sequence(self) -> Fragment:
        start = final = self._state()
        while self._peek() not in (None, "|", ")"):
            begin, end = self._repeated()
            self.edges[final].append((None, begin))
            final = end
        return start, final

    def _repeated(self) -> Fragment:
        fragment = self._atom()
        while (sign := self._peek()) in ("*", "+", "?"):
            self.at += 1
            (begin, end), fragment = fragment, self._around(fragment)
            if sign != "+":
                self.edges[fragment[0]].append((None, fragment[1]))
            if sign != "?":
                self.edges[end].append((None, begin))
        return fragment

    def _atom(self) -> Fragment:
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
        begin, end = self._state(), self._state()
        self.edges[begin].append((sign, end))
        return begin, end
