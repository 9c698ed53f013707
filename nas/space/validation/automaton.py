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

MAX_TOKENS: Final = 3_000
MAX_STATES: Final = 1_000
MAX_STEPS: Final = 300_000


@dataclass
class Budget:
    """The remaining work that may be spent to compile the path rules of one policy file.

    Attributes:
        tokens: remaining number of words and operators in expressions. It limits the size of the
            nondeterministic automata.
        states: remaining number of states of deterministic automata. It limits the work to
            validate a node.
        steps: remaining number of edges that the compilation may follow.
    """

    tokens: int = MAX_TOKENS
    states: int = MAX_STATES
    steps: int = MAX_STEPS

    def spend(self, steps: int = 0, states: int = 0, tokens: int = 0) -> None:
        """Subtract work from the budget.

        Raises:
            ValueError: a limit is exceeded.
        """
        self.steps, self.states = self.steps - steps, self.states - states
        self.tokens -= tokens
        for remaining, limit in (
            (self.tokens, f"{MAX_TOKENS} words and signs"),
            (self.states, f"{MAX_STATES} states"),
            (self.steps, f"{MAX_STEPS} steps to compile"),
        ):
            if remaining < 0:
                raise ValueError(f"the rules take more than {limit}; expected simpler rules")


class Symbol(NamedTuple):
    """A symbol of the automata's alphabet: the primitive and the role of a node."""

    op: str
    role: str


@dataclass(frozen=True)
class Automaton:
    """A deterministic automaton in which each state has a next state for each symbol.

    The states are numbered from 0, which is the start state.

    Attributes:
        pattern: text of the expression.
        accepting: bit mask of the accepting states.
        steps: for each symbol the tuple of the next states of all states.
    """

    pattern: str
    accepting: int
    steps: dict[Symbol, tuple[int, ...]]
    _masks: dict[tuple[int, Symbol], int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def all_states(self) -> int:
        """The set of all states, as a bit mask."""
        return (1 << len(next(iter(self.steps.values())))) - 1

    def advance(self, mask: int, symbol: Symbol) -> int:
        """Return the states that ``symbol`` reaches from the states in ``mask``, as a bit mask."""
        result = self._masks.get((mask, symbol))
        if result is None:
            result = 0
            for state, after in enumerate(self.steps[symbol]):
                if mask >> state & 1:
                    result |= 1 << after
            self._masks[mask, symbol] = result
        return result

    def retreat(self, mask: int, symbol: Symbol) -> int:
        """Return the states from which ``symbol`` leads to a state in ``mask``, as a bit mask."""
        return sum(1 << s for s, after in enumerate(self.steps[symbol]) if mask >> after & 1)


def compile_pattern(
    pattern: str, symbols: Sequence[Symbol], words: Set[str], budget: Budget | None = None
) -> Automaton:
    """Return the automaton of an expression.

    Args:
        pattern: text of the expression.
        symbols: alphabet of the automaton.
        words: words that the expression may contain.
        budget: work that may be spent; by default a new ``Budget``.

    Raises:
        ValueError: the expression is malformed, contains an unknown word, or exceeds the budget.
    """
    parser = _Parser(pattern, words, budget or Budget())
    nfa = parser.parse()
    # Letters that match the same words of the expression lead to the same states.
    used = set(parser.tokens)
    kinds = {symbol: frozenset(used.intersection(symbol)) for symbol in symbols}
    states = {nfa.closure({nfa.start}): 0}
    queue, table = list(states), []
    for subset in queue:
        nfa.budget.spend(states=1)
        row: dict[frozenset[str], int] = {}
        for kind in dict.fromkeys(kinds.values()):
            after = nfa.closure(nfa.move(subset, kind))
            if after not in states:
                states[after] = len(states)
                queue.append(after)
            row[kind] = states[after]
        table.append(row)
    accepting = sum(1 << number for subset, number in states.items() if nfa.final in subset)
    steps = {symbol: tuple(row[kind] for row in table) for symbol, kind in kinds.items()}
    return Automaton(pattern, accepting, steps)


class _Nfa:
    """A nondeterministic automaton, built by Thompson's construction.

    The label of an edge is a word, "." for any symbol, or None if the edge consumes no symbol.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.edges: list[list[tuple[str | None, int]]] = []
        self.start = self.final = 0

    def state(self) -> int:
        self.edges.append([])
        return len(self.edges) - 1

    def closure(self, states: Iterable[int]) -> frozenset[int]:
        reached = set(states)
        stack = list(reached)
        while stack:
            edges = self.edges[stack.pop()]
            self.budget.spend(len(edges))
            for word, after in edges:
                if word is None and after not in reached:
                    reached.add(after)
                    stack.append(after)
        return frozenset(reached)

    def move(self, states: Set[int], kind: Set[str]) -> set[int]:
        self.budget.spend(len(states))
        return {
            after
            for state in states
            for word, after in self.edges[state]
            if word is not None and (word == "." or word in kind)
        }


Fragment = tuple[int, int]


class _Parser:
    def __init__(self, pattern: str, words: Set[str], budget: Budget) -> None:
        self.pattern, self.words = pattern, words
        self.tokens = re.findall(r"\w+|\S", pattern)
        budget.spend(tokens=len(self.tokens))
        self.at = 0
        self.nfa = _Nfa(budget)

    def parse(self) -> _Nfa:
        if self.pattern.count("(") > 64:
            raise ValueError("more than 64 parentheses; expected a simpler expression")
        self.nfa.start, self.nfa.final = self._alternatives()
        if self.at < len(self.tokens):
            raise ValueError(f"{self.tokens[self.at]!r} stands where a word was expected")
        return self.nfa

    def _peek(self) -> str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def _around(self, *inside: Fragment) -> Fragment:
        """Return the start and end state of an automaton with ``inside`` as alternatives."""
        start, final = self.nfa.state(), self.nfa.state()
        for begin, end in inside:
            self.nfa.edges[start].append((None, begin))
            self.nfa.edges[end].append((None, final))
        return start, final

    def _alternatives(self) -> Fragment:
        first = self._sequence()
        while self._peek() == "|":
            self.at += 1
            first = self._around(first, self._sequence())
        return first

    def _sequence(self) -> Fragment:
        start = final = self.nfa.state()
        while self._peek() not in (None, "|", ")"):
            begin, end = self._repeated()
            self.nfa.edges[final].append((None, begin))
            final = end
        return start, final

    def _repeated(self) -> Fragment:
        fragment = self._atom()
        while (sign := self._peek()) in ("*", "+", "?"):
            self.at += 1
            (begin, end), fragment = fragment, self._around(fragment)
            if sign != "+":
                self.nfa.edges[fragment[0]].append((None, fragment[1]))
            if sign != "?":
                self.nfa.edges[end].append((None, begin))
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
        begin, end = self.nfa.state(), self.nfa.state()
        self.nfa.edges[begin].append((sign, end))
        return begin, end
