"""What every named mechanism promises, whatever it computes; each one is tried in turn.

E8 is the heart of it: samples never mix, and every token that is not padding can change what its
own sample gives, in a block and in a whole model.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nas.canonical import digest
from nas.compiler import build_attention, make_plan
from nas.costs import attention_cost
from nas.mechanisms import MECHANISMS, Mechanism
from nas.primitives import REGISTRY
from nas.tasks import load_task
from nas.tasks.images.examples import patches
from nas.tasks.images.model import VisionTransformer
from tests.tensors import count, draw

DIM, HEADS = 32, 4
# A constant added to all scores of a row: softmax does not see it (N6).
WITHOUT_GRADIENT = {
    "neural_attention": "neural_attention_0.out_bias",
    "neural_attention_authors": "neural_attention_authors_0.third.bias",
}
EVERY = pytest.mark.parametrize("found", MECHANISMS.values(), ids=list(MECHANISMS))


def block_of(found: Mechanism, dim: int = DIM, heads: int = HEADS) -> nn.Module:
    """In float64 and away from its start, where zeros would hide what they multiply."""
    torch.manual_seed(0)
    block = build_attention(found.genome, dim, heads).double()
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return block


def moved(x: Tensor, sample: int, token: int) -> Tensor:
    """The same input with another token in one place."""
    changed = x.clone()
    changed[sample, token] += draw(x.shape[-1], seed=2)
    return changed


def padding(batch: int, tokens: int, count: int) -> Tensor:
    """The last ``count`` tokens of the last sample are padding."""
    mask = torch.zeros(batch, tokens, dtype=torch.bool)
    mask[-1, tokens - count :] = True
    return mask


def length_of(found: Mechanism) -> int:
    """A few tokens, or more than its window reaches."""
    window = found.genome.visibility.window
    return 7 if window is None else window + 8


def is_place_blind(found: Mechanism) -> bool:
    """Whether nothing in it knows the place of a token."""
    roles = {REGISTRY[node.op].signatures[0].role for node in found.genome.nodes}
    return "position" not in roles and found.genome.visibility.window is None


@EVERY
class TestNamedMechanism:
    """The contract."""

    @pytest.mark.parametrize(("dim", "heads", "tokens"), [(16, 4, 5), (96, 16, 1), (16, 1, 3)])
    def test_exists_at_every_size_that_its_shares_divide(
        self, found: Mechanism, dim: int, heads: int, tokens: int
    ) -> None:
        block = build_attention(found.genome, dim, heads)
        out = block(torch.randn(2, tokens, dim))
        assert out.shape == (2, tokens, dim)
        assert bool(torch.isfinite(out).all())
        cost = attention_cost(found.genome, dim=dim, heads=heads, tokens=tokens)
        assert cost.params == count(block)

    def test_samples_never_mix(self, found: Mechanism) -> None:
        """E8, first half: whatever changes in one sample changes no other, to the last bit."""
        n = length_of(found)
        block, x = block_of(found), draw(3, n, DIM)
        masks: tuple[dict[str, Any], ...] = (
            {},
            {"is_causal": True},
            {"key_padding_mask": padding(3, n, 2)},
        )
        for mask in masks:
            before = block(x, **mask)
            after = block(moved(x, 1, 3), **mask)
            assert torch.equal(after[[0, 2]], before[[0, 2]])
            assert not torch.equal(after[1], before[1])
            alone = block(x[:1], **{k: v[:1] if v is not True else v for k, v in mask.items()})
            torch.testing.assert_close(alone[0], before[0], rtol=0.0, atol=1e-12)

    def test_every_token_that_is_not_padding_reaches_another(self, found: Mechanism) -> None:
        """E8, second half: through attention, not only through its own row."""
        n = length_of(found)
        block, x, hidden = block_of(found), draw(2, n, DIM), padding(2, n, 2)
        before = block(x, key_padding_mask=hidden)
        for sample, token in (~hidden).nonzero().tolist():
            after = block(moved(x, sample, token), key_padding_mask=hidden)
            others = [t for t in range(n) if t != token and not hidden[sample, t]]
            assert (after - before)[sample, others].abs().max() > 1e-6, (sample, token)

    def test_a_model_of_it_keeps_samples_apart_and_sees_every_patch(self, found: Mechanism) -> None:
        """E8 for a whole classifier: all images, all patches, to the logits."""
        sizes = {"image_size": 16, "patch": 8, "width": DIM, "depth": 2}
        task = load_task("vit-cifar10", data="digits", overrides=sizes)
        model = VisionTransformer(
            task, lambda layer: block_of(found), seed=0, patch_width=64, num_classes=10
        ).double()
        images = draw(2, 1, 16, 16)
        before = model(patches(images, 8))
        for row, column in ((0, 0), (0, 8), (8, 0), (8, 8)):
            changed = images.clone()
            changed[0, 0, row : row + 8, column : column + 8] += 1.0
            after = model(patches(changed, 8))
            torch.testing.assert_close(after[1], before[1], rtol=0.0, atol=1e-12)
            assert (after[0] - before[0]).abs().max() > 1e-6

    def test_a_causal_mask_hides_the_future_and_nothing_else(self, found: Mechanism) -> None:
        n = length_of(found)
        assert not make_plan(found.genome).unsafe, "no named mechanism sees ahead"
        block, x = block_of(found), draw(1, n, DIM)
        before = block(x, is_causal=True)
        for token in range(1, n):
            after = block(moved(x, 0, token), is_causal=True)
            torch.testing.assert_close(after[:, :token], before[:, :token], rtol=0.0, atol=1e-12)
            assert (after - before)[:, token].abs().max() > 1e-6
        longer = block(torch.cat([x, draw(1, 3, DIM, seed=5)], dim=1), is_causal=True)
        torch.testing.assert_close(longer[:, :n], before, rtol=0.0, atol=1e-10)

    def test_padding_is_as_if_it_were_not_there(self, found: Mechanism) -> None:
        n = length_of(found)
        block, x = block_of(found), draw(2, n, DIM)
        out = block(x, key_padding_mask=padding(2, n, 3))[-1, : n - 3]
        shorter = block(x[-1:, : n - 3])[0]
        torch.testing.assert_close(out, shorter, rtol=0.0, atol=1e-10)

    def test_a_row_that_sees_nothing_attends_to_nothing(self, found: Mechanism) -> None:
        """Zeros before W_O, finite values and gradients; the other rows do not notice."""
        n = length_of(found)
        block, x = block_of(found), draw(2, n, DIM).requires_grad_()
        allowed = torch.ones(n, n, dtype=torch.bool)
        allowed[2] = False
        out = block(x, attn_mask=allowed)
        nothing = block.wo.bias if found.genome.projections.has_wo else torch.zeros(DIM).double()
        torch.testing.assert_close(out[:, 2], nothing.expand(2, -1), rtol=0.0, atol=1e-12)
        rest = [t for t in range(n) if t != 2]
        torch.testing.assert_close(out[:, rest], block(x)[:, rest], rtol=0.0, atol=1e-12)
        all_padding = torch.ones(2, n, dtype=torch.bool)
        (out.square().sum() + block(x, key_padding_mask=all_padding).square().sum()).backward()
        for tensor in (x, *block.parameters()):
            assert tensor.grad is None or bool(torch.isfinite(tensor.grad).all())

    def test_gradients_reach_every_parameter(self, found: Mechanism) -> None:
        block, x = block_of(found), draw(2, length_of(found), DIM)
        block(x).square().sum().backward()
        sizes = {name: p.grad.norm() for name, p in block.named_parameters()}
        expected = WITHOUT_GRADIENT.get(found.name)
        still = [name for name, size in sizes.items() if size < 1e-10]
        assert still == ([expected] if expected else [])

    def test_one_seed_gives_one_block(self, found: Mechanism) -> None:
        x, outputs = draw(2, length_of(found), DIM).float(), []
        for seed in (3, 3, 4):
            torch.manual_seed(seed)
            outputs.append(build_attention(found.genome, DIM, HEADS)(x))
        assert torch.equal(outputs[0], outputs[1])
        assert not torch.equal(outputs[0], outputs[2])

    def test_order_matters_only_to_what_knows_places(self, found: Mechanism) -> None:
        n = length_of(found)
        block, x = block_of(found), draw(2, n, DIM)
        order = torch.arange(n).roll(n // 2)
        out, shuffled = block(x)[:, order], block(x[:, order])
        assert torch.allclose(shuffled, out, rtol=0.0, atol=1e-10) == is_place_blind(found)

    def test_reading_is_written_for_a_terminal(self, found: Mechanism) -> None:
        """A line of what it is, then equations, then shapes and readings; nothing wraps."""
        assert found.paper
        assert found.reading.startswith(f"{found.about}.\n\n    ")
        assert max(map(len, found.reading.splitlines())) <= 80


def test_no_two_names_mean_one_mechanism() -> None:
    assert len({digest(found.genome) for found in MECHANISMS.values()}) == len(MECHANISMS)
    assert all(name == found.name for name, found in MECHANISMS.items())


def test_families_stand_together_and_controls_last() -> None:
    names = list(MECHANISMS)
    landmarks = ["mha", "sqa", "qana", "neural_attention", "patterns", "champion_2025", "uniform"]
    assert [names.index(name) for name in landmarks] == sorted(names.index(n) for n in landmarks)
    assert [m.name for m in MECHANISMS.values() if m.paper == "control"] == names[-2:]
