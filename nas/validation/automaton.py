"""Regular expressions over words, compiled to deterministic automata.

    ".* score (score | adjust)* normalize"

A letter of a path is a node, and it answers to two words: its primitive's name and the role
it plays. Operators: juxtaposition, ``|``, ``*``, ``+``, ``?``, parentheses, and ``.`` for any
node. Sets of states are bit masks, so that one pass over a DAG follows every path at once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from nas.config import near

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence, Set


MAX_STATES: Final = 1_000


class Letter(NamedTuple):
    """A node as the automaton sees it: the primitive's name and the role."""

    op: str
    role: str


@dataclass(frozen=True)
class Automaton:
    """A complete deterministic automaton; state 0 is the start.

    Attributes:
        pattern: the expression as written.
        accepting: mask of the accepting states.
        steps: for each letter the successor of each state.
    """

    pattern: str
    accepting: int
    steps: dict[Letter, tuple[int, ...]]
    _masks: dict[tuple[int, Letter], int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def all_states(self) -> int:
        """The mask of every state."""
        return (1 << len(next(iter(self.steps.values())))) - 1

    def advance(self, mask: int, letter: Letter) -> int:
        """The states reached from any state of ``mask`` by one letter."""
        found = self._masks.get((mask, letter))
        if found is None:
            found = 0
            for state, after in enumerate(self.steps[letter]):
                if mask >> state & 1:
                    found |= 1 << after
            self._masks[mask, letter] = found
        return found

    def retreat(self, mask: int, letter: Letter) -> int:
        """The states from which one letter leads into ``mask``."""
        return sum(1 << s for s, after in enumerate(self.steps[letter]) if mask >> after & 1)


def compile_pattern(pattern: str, letters: Sequence[Letter], words: Set[str]) -> Automaton:
    """Compile an expression over the given alphabet.

    Raises:
        ValueError: the expression is malformed or uses a word that is not among ``words``.
    """
    nfa = _Parser(pattern, words).parse()
    start = nfa.closure({nfa.start})
    states: dict[frozenset[int], int] = {start: 0}
    queue, table = [start], []
    for subset in queue:
        if len(states) > MAX_STATES:
            raise ValueError(f"more than {MAX_STATES} states; expected a simpler expression")
        row = []
        for letter in letters:
            after = nfa.closure(nfa.move(subset, letter))
            if after not in states:
                states[after] = len(states)
                queue.append(after)
            row.append(states[after])
        table.append(row)
    accepting = sum(1 << number for subset, number in states.items() if nfa.final in subset)
    steps = {letter: tuple(row[i] for row in table) for i, letter in enumerate(letters)}
    return Automaton(pattern, accepting, steps)


class _Nfa:
    """Thompson's construction: words on edges, None for an empty edge, "." for any letter."""

    def __init__(self) -> None:
        self.edges: list[list[tuple[str | None, int]]] = []
        self.start = self.final = 0

    def state(self) -> int:
        self.edges.append([])
        return len(self.edges) - 1

    def closure(self, states: Iterable[int]) -> frozenset[int]:
        seen = set(states)
        stack = list(seen)
        while stack:
            for word, after in self.edges[stack.pop()]:
                if word is None and after not in seen:
                    seen.add(after)
                    stack.append(after)
        return frozenset(seen)

    def move(self, states: Iterable[int], letter: Letter) -> set[int]:
        return {
            after
            for state in states
            for word, after in self.edges[state]
            if word is not None and (word == "." or word in letter)
        }


Fragment = tuple[int, int]


class _Parser:
    """Recursive descent: alternatives of sequences of repeated atoms."""

    def __init__(self, pattern: str, words: Set[str]) -> None:
        self.pattern, self.words = pattern, words
        self.tokens = re.findall(r"\w+|\S", pattern)
        self.at = 0
        self.nfa = _Nfa()

    def parse(self) -> _Nfa:
        if self.pattern.count("(") > 64:
            raise ValueError("more than 64 parentheses; expected a simpler expression")
        self.nfa.start, self.nfa.final = self._alternatives()
        if self.at < len(self.tokens):
            raise ValueError(f"{self.tokens[self.at]!r} stands where a word was expected")
        return self.nfa

    def _peek(self) -> str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def _alternatives(self) -> Fragment:
        first = self._sequence()
        while self._peek() == "|":
            self.at += 1
            second = self._sequence()
            start, final = self.nfa.state(), self.nfa.state()
            for begin, end in (first, second):
                self.nfa.edges[start].append((None, begin))
                self.nfa.edges[end].append((None, final))
            first = start, final
        return first

    def _sequence(self) -> Fragment:
        start = final = self.nfa.state()
        while self._peek() not in (None, "|", ")"):
            begin, end = self._repeated()
            self.nfa.edges[final].append((None, begin))
            final = end
        return start, final

    def _repeated(self) -> Fragment:
        begin, end = self._atom()
        while (sign := self._peek()) in ("*", "+", "?"):
            self.at += 1
            start, final = self.nfa.state(), self.nfa.state()
            self.nfa.edges[start].append((None, begin))
            self.nfa.edges[end].append((None, final))
            if sign != "+":
                self.nfa.edges[start].append((None, final))
            if sign != "?":
                self.nfa.edges[end].append((None, begin))
            begin, end = start, final
        return begin, end

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
                f"{sign!r} is neither a role nor a primitive{near(sign, sorted(self.words))}"
            )
        begin, end = self.nfa.state(), self.nfa.state()
        self.nfa.edges[begin].append((sign, end))
        return begin, end
