"""Every named mechanism keeps the promises of ``nas.testing``."""

from __future__ import annotations

import pytest

from nas.compiler import make_plan
from nas.genome.mechanisms import MECHANISMS, NamedMechanism
from nas.testing import check_mechanism

DIM, HEADS = 32, 4
# A constant added to all scores of a row: softmax does not see it (N6).
STILL = {
    "canon": ["short_conv_2.conv.bias"],
    "neural_attention": ["neural_attention_0.out_bias"],
    "neural_attention_authors": ["neural_attention_authors_0.third_bias"],
}
EVERY = pytest.mark.parametrize("found", MECHANISMS.values(), ids=list(MECHANISMS))


@EVERY
def test_mechanism_keeps_what_blocks_promise(found: NamedMechanism) -> None:
    check_mechanism(found.genome, still=STILL.get(found.name, ()))
    assert not make_plan(found.genome).unsafe
