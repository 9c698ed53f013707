"""Checks of ``nas.testing`` fail for a broken member, with a message that names the promise."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nas.common.errors import GenomeError
from nas.genome.primitives import Role
from nas.genome.primitives.base import REGISTRY, primitive
from nas.genome.primitives.tensors import drop_padding
from nas.testing import check_mechanism, check_primitive
from nas.testing.mechanisms import sees_no_later_token_and_no_other_example
from nas.testing.promises import keep
from tests.genomes import ATTENTION_TO_FIRST, build

pytestmark = pytest.mark.usefixtures("restored_registries")

SCORE = "query: tokens[h,w], key: tokens[h,w] -> scores[h]"
NORMALISER = "scores: scores[h] -> weights[h]"
ON_TOKENS = "tokens: tokens[h,w] -> tokens[h,w]"
TEXTS = {"notation": "f", "source": "a test"}


class Score(nn.Module):
    """A score, computed by a function."""

    rule: Callable[..., Tensor]

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return type(self).rule(query, key)


class Wrong(torch.autograd.Function):
    """An exponential with a wrong gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.exp()

    @staticmethod
    def backward(ctx: Any, above: Tensor) -> Tensor:
        return above


@pytest.mark.parametrize(
    ("rule", "declared", "said"),
    [
        (lambda q, k: (q @ k.mT)[..., :-1], {}, r"the shape is \(4, 4, 9, 8\); expected"),
        (lambda q, k: Wrong.apply(q @ k.mT), {}, "Jacobian mismatch .* with respect to input 0"),
        (lambda q, k: q @ (k + k.mean(2, True)).mT, {}, "padding of the last two tokens changes"),
        (lambda q, k: q @ k.mT, {"is_causal_safe": lambda p: False}, "later tokens, and sees none"),
        (lambda q, k: q @ k.mT * (1 + 1e-13 * torch.rand(()).double()), {}, "expected random"),
    ],
)
def test_kit_detects_a_broken_score(rule: Any, declared: dict[str, Any], said: str) -> None:
    Score.rule = staticmethod(rule)  # type: ignore[assignment]
    primitive("planted", SCORE, role=Role.SCORE, **TEXTS | declared)(Score)
    with pytest.raises(AssertionError, match=rf"(?si)^the primitive planted breaks .*({said})"):
        check_primitive("planted")


class OnTokens(nn.Module):
    """A function of the tokens, with zeros in place of padding."""

    rule: Callable[[Tensor], Tensor]
    needs_all_tokens = True

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        return type(self).rule(drop_padding(tokens, mask))


class Summed(OnTokens):
    """Sums of a token and the earlier tokens, whose class does not say that they need them all."""

    needs_all_tokens = False
    rule = staticmethod(lambda x: x.cumsum(dim=2))


class Blind(OnTokens):
    """Sums that read padding."""

    def forward(self, tokens: Tensor) -> Tensor:  # type: ignore[override]
        return tokens.cumsum(dim=2)


LEAKS: dict[str, Callable[[Tensor], Tensor]] = {
    "closed gate": lambda x: x + 1e-9 * x.mean(dim=2, keepdim=True),
    "next token": lambda x: x + nn.functional.pad(x[:, :, 1:], (0, 0, 0, 1)),
    "beyond 32 tokens": lambda x: x + (x.shape[2] > 32) * x.flip(2),
    "three examples": lambda x: x + (len(x) > 2) * x.mean(dim=0),
    "16 examples": lambda x: x + (len(x) > 16) * x.roll(1, dims=0),
}


@pytest.mark.parametrize("name", LEAKS)
def test_kit_detects_a_leak(name: str) -> None:
    said = "other examples" if "examples" in name else "depends on later tokens"
    OnTokens.rule = staticmethod(LEAKS[name])
    primitive("planted", ON_TOKENS, role=Role.POSITION, **TEXTS)(OnTokens)
    with pytest.raises(AssertionError, match=said):
        check_primitive("planted")
    genome = build(("planted", "v"), *ATTENTION_TO_FIRST)
    with pytest.raises(AssertionError, match=said):
        keep("it", [sees_no_later_token_and_no_other_example], genome)


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (Blind, "padding of the first two tokens changes .* give forward an argument"),
        (Summed, "for tokens 1 to 3 only .needs_all_tokens = True"),
    ],
)
def test_kit_detects_an_ignored_mask_or_a_hidden_dependence(module: Any, said: str) -> None:
    primitive("planted", ON_TOKENS, role=Role.POSITION, **TEXTS)(module)
    with pytest.raises(AssertionError, match=f"^the primitive planted breaks a promise .*{said}"):
        check_primitive("planted")


@pytest.mark.parametrize(
    ("module", "signature", "declared", "said"),
    [
        (nn.Identity, "scores -> scores", {"notation": "t"}, "expected 'operands -> result'"),
        (Score, NORMALISER, {"notation": "t"}, "has no argument mask; expected mask=None, and"),
    ],
)
def test_malformed_declarations_are_refused_at_once(
    module: Any, signature: str, declared: dict[str, Any], said: str
) -> None:
    made = type("Malformed", (module,), {})
    with pytest.raises(GenomeError, match=f"planted.*{said}"):
        primitive("planted", signature, role=Role.NORMALIZE, source="a test", **declared)(made)
    assert "planted" not in REGISTRY.registered


def test_kit_detects_a_deviation_from_the_reference() -> None:
    import_module("tests.plugins.primitive")
    with pytest.raises(
        AssertionError, match=r"its reference.*the result: Tensor-likes are not close"
    ):
        check_primitive("squared_score", lambda module, q, k: q @ k.mT)


def test_kit_detects_a_broken_mechanism() -> None:
    mha = build(("scaled_dot_product", "qk"), ("softmax", [0]), ("weighted_sum", [1, "v"]))
    with pytest.raises(AssertionError, match=r"\[\] have none; expected \['wq.weight'\]"):
        check_mechanism(mha, still=["wq.weight"])
