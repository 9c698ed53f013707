"""Every named mechanism keeps the promises of ``nas.testing``."""

from __future__ import annotations

import pytest
import torch

from nas.compiler import build_attention, make_plan
from nas.genome.mechanisms import MECHANISMS, NamedMechanism
from nas.testing import check_mechanism
from nas.testing.promises import noisy

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


@EVERY
def test_every_token_changes_the_output_of_another(found: NamedMechanism) -> None:
    """Except for the last token, since a recurrence reads no later token."""
    torch.manual_seed(0)
    block = noisy(build_attention(found.genome, DIM, HEADS))
    first, second = torch.randn(2, 1, 9, DIM, dtype=torch.float64)
    changed = torch.where(torch.eye(9, dtype=torch.bool)[:, :, None], second, first)
    effects = (block(changed) - block(first)).abs().amax(dim=2)
    assert effects.fill_diagonal_(0.0).amax(dim=1)[:-1].min() > 1e-6
