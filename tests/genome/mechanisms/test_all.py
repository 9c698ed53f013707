"""Every named mechanism keeps the promises of ``nas.testing``."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nas.compiler import build_attention, make_plan
from nas.genome.canonical import digest
from nas.genome.mechanisms import MECHANISMS, NamedMechanism
from nas.genome.primitives import REGISTRY
from nas.tasks import load_task
from nas.tasks.images.model import VisionTransformer, patches
from nas.testing import check_mechanism
from tests.tensors import draw

DIM, HEADS = 32, 4
# A constant added to all scores of a row: softmax does not see it (N6).
STILL = {
    "canon": ["short_conv_2.conv.bias"],
    "neural_attention": ["neural_attention_0.out_bias"],
    "neural_attention_authors": ["neural_attention_authors_0.third.bias"],
}
EVERY = pytest.mark.parametrize("found", MECHANISMS.values(), ids=list(MECHANISMS))


def block_of(found: NamedMechanism) -> nn.Module:
    """In float64 and away from its start, where zeros would hide what they multiply."""
    torch.manual_seed(0)
    block = build_attention(found.genome, DIM, HEADS).double()
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return block


def is_place_blind(found: NamedMechanism) -> bool:
    """Whether nothing in it knows the place of a token."""
    roles = {REGISTRY[node.op].signatures[0].role for node in found.genome.nodes}
    knows_order = {"stick_breaking"} & {node.op for node in found.genome.nodes}
    knows_order |= {"position", "forget"} & roles
    return not knows_order and found.genome.visibility.window is None


@EVERY
def test_mechanism_keeps_what_blocks_promise(found: NamedMechanism) -> None:
    check_mechanism(found.genome, still=STILL.get(found.name, ()))
    assert not make_plan(found.genome).unsafe


@EVERY
def test_order_matters_only_to_what_knows_places(found: NamedMechanism) -> None:
    window = found.genome.visibility.window
    n = 7 if window is None else window + 8
    block, x = block_of(found), draw(2, n, DIM)
    order = torch.arange(n).roll(n // 2)
    out, shuffled = block(x)[:, order], block(x[:, order])
    assert torch.allclose(shuffled, out, rtol=0.0, atol=1e-10) == is_place_blind(found)


@pytest.mark.parametrize("name", ["mha", "champion_2025", "differential"])
def test_a_classifier_keeps_images_apart_and_sees_every_patch(name: str) -> None:
    sizes = {"image_size": 16, "patch": 8, "width": DIM, "depth": 2}
    task = load_task("vit-cifar10", data="digits", overrides=sizes)
    sizes = {"patch_width": 64, "num_classes": 10, "has_class_token": True, "has_sines": True}
    model = VisionTransformer(task, lambda _: block_of(MECHANISMS[name]), seed=0, **sizes).double()
    images = draw(2, 1, 16, 16)
    before = model(patches(images, 8))
    for row, column in ((0, 0), (0, 8), (8, 0), (8, 8)):
        changed = images.clone()
        changed[0, 0, row : row + 8, column : column + 8] += 1.0
        after = model(patches(changed, 8))
        torch.testing.assert_close(after[1], before[1], rtol=0.0, atol=1e-12)
        assert (after[0] - before[0]).abs().max() > 1e-6


def test_no_two_names_mean_one_mechanism() -> None:
    assert len({digest(found.genome) for found in MECHANISMS.values()}) == len(MECHANISMS)
    assert all(name == found.name for name, found in MECHANISMS.items())
