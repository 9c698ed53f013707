"""Names of finds."""

from __future__ import annotations

from nas.genome.canonical import digest
from nas.genome.mechanisms import MECHANISMS
from nas.genome.naming import digits_needed, find_name


def test_names_have_the_operations_that_mha_does_not_have() -> None:
    names = {name: find_name(MECHANISMS[name].genome, "0123abcd") for name in ("mha", "sink")}
    assert names == {"mha": "attention-0123", "sink": "softmax_sink-0123"}
    of_finds = [find_name(each.genome, digest(each.genome)) for each in MECHANISMS.values()]
    assert len({*of_finds}) == len(MECHANISMS)


def test_as_many_digits_as_distinguish_all() -> None:
    assert digits_needed(["abcdef", "abcdff", "abcdff"]) == 5
    assert digits_needed(["abcdef"]) == digits_needed([]) == 4
