from __future__ import annotations

import itertools
import re

import pytest

from nas.space.rules.automaton import Symbol, compile_pattern

SYMBOLS = [Symbol("a1", "a"), Symbol("a2", "a"), Symbol("b1", "b"), Symbol("c1", "c")]
WORDS = {"a1", "a2", "b1", "c1", "a", "b", "c"}


@pytest.mark.parametrize(
    ("pattern", "regex"),
    [
        (".* a", "[xyzw]*[xy]"),
        ("a b* c", "[xy]z*w"),
        ("(a | b)+ c?", "([xy]|z)+w?"),
        ("a1 a2 | b", "xy|z"),
        ("(a1 (b | c)*)* a2", "(x(z|w)*)*y"),
        ("", ""),
        ("a | ", "[xy]?"),
    ],
)
def test_accepts_what_pythons_re_accepts(pattern: str, regex: str) -> None:
    """x, y, z, w stand for a1, a2, b1, c1; every word of up to five symbols is compared."""
    automaton = compile_pattern(pattern, SYMBOLS, WORDS)
    signs = dict(zip("xyzw", SYMBOLS, strict=True))
    for length in range(6):
        for word in itertools.product("xyzw", repeat=length):
            mask = 1
            for sign in word:
                mask = automaton.advance(mask, signs[sign])
            assert bool(mask & automaton.accepting) == bool(re.fullmatch(regex, "".join(word)))


def test_retreat_is_the_inverse_of_advance() -> None:
    automaton = compile_pattern("a (b | c a)* b", SYMBOLS, WORDS)
    for symbol in SYMBOLS:
        for target in range(automaton.all_states + 1):
            back = automaton.retreat(target, symbol)
            for state in range(automaton.all_states.bit_length()):
                leads_in = bool(automaton.advance(1 << state, symbol) & target)
                assert bool(back >> state & 1) == leads_in
