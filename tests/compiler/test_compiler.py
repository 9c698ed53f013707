from __future__ import annotations

import gc
import inspect
import linecache
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from nas.common.errors import ViolationError
from nas.compiler import build_attention, building
from nas.genome import Genome
from nas.genome.mechanisms import MECHANISMS
from tests.genomes import build
from tests.tensors import add_noise, check_same, merged, streams, with_gradients


def both(genome: Genome, dim: int, heads: int, qkv_bias: bool = False) -> list[nn.Module]:
    """The generated module and the interpreter with the same random weights, in float64."""
    built = []
    for reference in (False, True):
        torch.manual_seed(0)
        block = build_attention(genome, dim, heads, qkv_bias=qkv_bias, reference=reference)
        built.append(block.double())
    generated, reference_block = built
    assert list(generated.state_dict()) == list(reference_block.state_dict())
    add_noise(generated, 0.1)
    reference_block.load_state_dict(generated.state_dict())
    return built


def values_and_gradients(block: nn.Module, x: Tensor, **masks: object) -> list[Tensor]:
    x = x.clone().requires_grad_()
    return with_gradients(block(x, **masks), [x, *block.parameters()])


def check_equal(genome: Genome, n: int, *given: dict[str, Any]) -> list[nn.Module]:
    """Values and all gradients of the generated module and the interpreter, under some masks."""
    blocks = both(genome, 32, 8)
    x = torch.randn(2, n, 32, dtype=torch.float64)
    for masks in given:
        check_same(*(values_and_gradients(block, x, **masks) for block in blocks))
    return blocks


def masks(n: int) -> dict[str, dict[str, Any]]:
    """Masks of every kind for two sequences."""
    allowed = torch.rand(n, n) > 0.3
    empty = allowed.clone()
    empty[min(7, n - 1)] = False  # a query that sees nothing gets zeros
    padding = (torch.arange(n) >= n - 2).expand(2, n)
    return {
        "none": {},
        "padding": {"key_padding_mask": padding},
        "mask": {"attn_mask": allowed.expand(2, 1, n, n), "key_padding_mask": padding},
        "row": {"attn_mask": empty},
    }


def test_causal_call_of_a_mechanism_that_sees_later_tokens_raises_an_error() -> None:
    found = build(("convolutional_score", "qk"), ("softmax", [0]), ("weighted_sum", [1, "v"]))
    for reference in (True, False):
        block = build_attention(found, 16, 2, reference=reference)
        with pytest.raises(ValueError, match="convolutional_score"):
            block(torch.randn(1, 4, 16), is_causal=True)


def test_masks_have_the_meaning_of_torchs_attention() -> None:
    torch.manual_seed(0)
    block = build_attention(MECHANISMS["mha"].genome, 32, 4).double()
    x = torch.randn(2, 5, 32, dtype=torch.float64)
    allowed = torch.rand(5, 5) > 0.4
    allowed.fill_diagonal_(True)
    padding = torch.tensor([[False] * 5, [False, False, False, True, True]])
    mask = allowed & ~padding[:, None, None, :]
    mask[1, 0, 4] = False  # a row that sees nothing gives zeros
    out = block(x, attn_mask=mask)
    expected = F.scaled_dot_product_attention(*streams(block, x), attn_mask=mask).nan_to_num()
    expected[1, :, 4] = 0.0
    torch.testing.assert_close(out, merged(block, expected))
    kept = block(x, attn_mask=allowed, key_padding_mask=padding)
    torch.testing.assert_close(kept[1, :3], out[1, :3])


@pytest.mark.parametrize(
    "masks",
    [
        {"attn_mask": torch.zeros(4, 4)},
        {"attn_mask": torch.ones(2, 4, 4, dtype=torch.bool)},
        {"attn_mask": torch.ones(2, 2, 4, 4, dtype=torch.bool)},
        {"key_padding_mask": torch.zeros(2, 5, dtype=torch.bool)},
    ],
)
@pytest.mark.parametrize("reference", [True, False])
def test_masks_of_wrong_type_or_shape_raise_an_error(
    masks: dict[str, Tensor], reference: bool
) -> None:
    block = build_attention(MECHANISMS["mha"].genome, 16, 2, reference=reference)
    with pytest.raises(ValueError, match=r"found tokens of shape \(4, 16\); expected \(batch,"):
        block(torch.zeros(4, 16))
    with pytest.raises(ValueError, match=r"of shape .*; expected torch\.bool, \("):
        block(torch.randn(2, 4, 16), **masks)


def test_an_ill_typed_genome_raises_an_error_with_the_node() -> None:
    with pytest.raises(ViolationError, match=r"node 1 \(softmax\)"):
        build_attention(
            build(("scaled_dot_product", "qk"), ("softmax", "q"), ("weighted_sum", [1, "v"])), 16, 2
        )


@pytest.mark.parametrize("name", ["mha", "qana", "linear", "kda", "retnet"])
def test_an_empty_batch_gives_an_empty_result(name: str) -> None:
    for block in both(MECHANISMS[name].genome, 32, 8):
        assert block(torch.zeros(0, 5, 32, dtype=torch.float64)).shape == (0, 5, 32)


def test_lines_of_generated_classes_are_kept_as_long_as_the_classes() -> None:
    def names() -> set[str]:
        return {name for name in linecache.cache if name.startswith("<nas attention")}

    before = names()
    block = build_attention(MECHANISMS["mha"].genome, 24, 3)
    (name,) = names() - before
    assert linecache.getline(name, 1) == "import torch\n"
    assert inspect.getsource(type(block)).startswith("class Attention(nn.Module):")
    del block
    building._load.cache_clear()
    gc.collect()
    assert name not in names()


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
def test_second_derivatives_equal_those_of_the_interpreter(name: str) -> None:
    results = []
    x = torch.randn(2, 6, 48, dtype=torch.float64, requires_grad=True)
    for block in both(MECHANISMS[name].genome, 48, 4):
        with sdpa_kernel(SDPBackend.MATH):
            (gradient,) = torch.autograd.grad(block(x).pow(2).sum(), x, create_graph=True)
        results.append(torch.autograd.grad(gradient.pow(2).sum(), x)[0])
    torch.testing.assert_close(*results, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", MECHANISMS)
def test_hooks_of_every_linear_layer_run_once(name: str) -> None:
    """So adapters and quantised layers, which replace a linear layer, take part."""
    block = build_attention(MECHANISMS[name].genome, 48, 4)
    calls: Counter[str] = Counter()
    layers = [name for name, module in block.named_modules() if isinstance(module, nn.Linear)]
    for layer in layers:
        block.get_submodule(layer).register_forward_hook(lambda *_, key=layer: calls.update([key]))
    block(torch.randn(2, 6, 48))
    assert calls == Counter(layers)
