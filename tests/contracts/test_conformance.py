"""Checks of ``nas.testing`` fail for a broken member, with a message that names the promise."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nas.common.errors import GenomeError
from nas.costs import COSTS, CostMeasure
from nas.exporting import EXPORTS, ExportFormat
from nas.genome import ModelSizes
from nas.genome.primitives import Role
from nas.genome.primitives.base import REGISTRY, primitive
from nas.genome.primitives.domains import Choice
from nas.genome.primitives.masks import drop_padding, hide
from nas.searching.algorithm import ALGORITHMS
from nas.surgery.core import AttentionCore
from nas.testing import (
    check_algorithm,
    check_cost,
    check_export,
    check_host,
    check_mechanism,
    check_primitive,
)
from nas.testing.promises import keep
from nas.testing.tasks import MODEL_PROMISES, loads_the_same_data
from tests.contracts.test_plugins import TINY
from tests.genomes import build

pytestmark = pytest.mark.usefixtures("restored_registries")


class Planted(nn.Module):
    """A score."""

    rule: Callable[[Any, Tensor, Tensor], Tensor]

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return self.rule(query, key)


def planted(forward: Callable[[Any, Tensor, Tensor], Tensor], **declared: Any) -> str:
    """Register a score of the name "planted", and return the name."""
    Planted.rule = forward  # type: ignore[method-assign]
    fields = {"notation": "{query}·{key}", "source": "a test"} | declared
    signature = "query: tokens[h,w], key: tokens[h,w] -> scores[h]"
    primitive("planted", signature, role=Role.SCORE, **fields)(Planted)
    return "planted"


def looking_ahead(module: Any, query: Tensor, key: Tensor) -> Tensor:
    return query @ (key + key.mean(dim=2, keepdim=True)).mT


class Wrong(torch.autograd.Function):
    """An exponential with a wrong gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.exp()

    @staticmethod
    def backward(ctx: Any, above: Tensor) -> Tensor:
        return above


@pytest.mark.parametrize(
    ("forward", "declared", "said"),
    [
        (lambda m, q, k: (q @ k.mT)[..., :-1], {}, r"the shape is \(2, 2, 5, 4\); expected"),
        (lambda m, q, k: (q @ k.mT).float(), {}, "float64 in, torch.float32 out"),
        (lambda m, q, k: Wrong.apply(q @ k.mT), {}, "gradient of query at .*wrong: Jacobian"),
        (looking_ahead, {}, "a hidden key changes the result at token"),
        (
            lambda m, q, k: q @ k.mT,
            {"is_causal_safe": lambda p: False},
            "later tokens, and sees none",
        ),
        (lambda m, q, k: torch.log(q @ k.mT), {}, "by inf"),
        (lambda m, q, k: q @ k.mT, {"source": ""}, "it names no source"),
        (lambda m, q, k: q @ k.mT + torch.rand(()), {}, "of a seed differ|Jacobian|hidden key"),
    ],
)
def test_kit_detects_a_broken_primitive(forward: Any, declared: dict[str, Any], said: str) -> None:
    subject = r"the primitive planted \(query: tokens, key: tokens -> scores\)"
    with pytest.raises(AssertionError, match=rf"(?si)^{subject} breaks a promise .*({said})"):
        check_primitive(planted(forward, **declared))


class Summed(nn.Module):
    """Sums of a token and the earlier tokens."""

    needs_all_tokens = True

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        return drop_padding(tokens, mask).cumsum(dim=2)


class Blind(Summed):
    """Sums that read padding."""

    def forward(self, tokens: Tensor) -> Tensor:  # type: ignore[override]
        return tokens.cumsum(dim=2)


class Unheeding(Summed):
    """Sums that ignore the mask which they receive."""

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        return tokens.cumsum(dim=2)


class Local(Summed):
    """Sums whose class does not say that they need all tokens."""

    needs_all_tokens = False


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (Blind, "hides the first two of 9 tokens .* token 2 by .* give forward an argument"),
        (Unheeding, "the first two .*ignored.*to hide keys, call drop_padding"),
        (Local, "for tokens 1 to 3 only, gives another .* set needs_all_tokens = True"),
    ],
)
def test_kit_detects_an_ignored_mask_or_a_hidden_dependence(module: Any, said: str) -> None:
    subject = r"the primitive planted \(tokens: tokens -> tokens\) breaks a promise"
    with pytest.raises(AssertionError, match=f"^{subject} .*{said}"):
        check_primitive(planted_on_tokens(module))


def planted_on_tokens(module: Any, **declared: Any) -> str:
    fields = {"notation": "{tokens}", "source": "a test"} | declared
    signature = "tokens: tokens[h,w] -> tokens[h,w]"
    primitive("planted", signature, role=Role.POSITION, **fields)(module)
    return "planted"


class Weighting(nn.Module):
    """Weights."""

    rule = None

    def __init__(self, *, form: str) -> None:
        super().__init__()
        self.form = form

    def forward(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.rule(scores, mask, self.form)  # type: ignore[misc]


def weighting(rule: Any) -> str:
    Weighting.rule = rule
    primitive(
        "planted",
        "scores: scores[h] -> weights[h]",
        role=Role.NORMALIZE,
        parameters={"form": Choice(default="plain", values=("plain", "wrong"))},
        notation="{scores}",
        source="a test",
    )(Weighting)
    return "planted"


def softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    return torch.softmax(hide(scores, mask), dim=-1)


def over_rows_with_keys(scores: Tensor, mask: Tensor | None, value: float) -> Tensor:
    """Return softmax; ``value`` in rows without keys, where it is not a number."""
    hidden = hide(scores, mask)
    empty = (hidden == -torch.inf).all(dim=-1, keepdim=True)
    return torch.softmax(hidden.masked_fill(empty, 0.0), dim=-1).masked_fill(empty, value)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (lambda m, s, mask, form: s.softmax(-1), "hides the last two .* call hide.scores, mask"),
        (
            lambda m, s, mask, form: softmax(s, mask),
            "under a mask that hides all keys from query 1, the result has NaN; expected numbers",
        ),
        (
            lambda m, s, mask, form: over_rows_with_keys(s, mask, 1.0),
            "under a mask that hides all keys from query 1, weights of hidden keys are not zero",
        ),
        (
            lambda m, s, mask, form: over_rows_with_keys(s.clamp(min=-9), mask, 0.0),
            "with scores of -inf and no mask, an excluded score gets a weight; expected 0",
        ),
    ],
)
def test_kit_names_the_mask_that_a_normaliser_breaks(rule: Any, said: str) -> None:
    subject = r"the primitive planted \(form=plain; scores: scores -> weights\) breaks a promise"
    with pytest.raises(AssertionError, match=f"^{subject} .*{said}"):
        check_primitive(weighting(rule))


def test_kit_names_the_parameters_of_the_broken_case() -> None:
    def wrong(module: Any, scores: Tensor, mask: Any, form: str) -> Tensor:
        return over_rows_with_keys(scores, mask, 0.0) * (1 if form == "plain" else math.nan)

    with pytest.raises(AssertionError, match=r"planted \(form=wrong; scores: scores -> weights\)"):
        check_primitive(weighting(wrong))


def test_normaliser_without_a_mask_is_refused() -> None:
    class Unmasked(nn.Module):
        def forward(self, scores: Tensor) -> Tensor:
            return scores.softmax(dim=-1)

    with pytest.raises(GenomeError, match="has no argument mask; expected mask=None, and weights"):
        primitive(
            "planted",
            "scores: scores[h] -> weights[h]",
            role=Role.NORMALIZE,
            notation="{scores}",
            source="a test",
        )(Unmasked)
    assert "planted" not in REGISTRY.registered


class Scaled(nn.Module):
    """With an argument that is neither a size nor a declared parameter."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()

    def forward(self, scores: Tensor) -> Tensor:
        return scores


@pytest.mark.parametrize(
    ("module", "signature", "declared", "said"),
    [
        (nn.Identity, "scores: scores[h] -> scores[h]", {"notation": "t·{score}"}, "notation has"),
        (nn.Identity, "scores: scores[h] -> scores[h]", {}, "missing 1 required .* 'notation'"),
        (nn.Identity, "scores -> scores", {"notation": "t"}, "expected 'operands -> result'"),
        (nn.Identity, "scores: scores[h] -> scores[h]", {"notation": "{t"}, "expected '}'"),
        (Scaled, "scores: scores[h] -> scores[h]", {"notation": "t"}, "class has num_heads; exp"),
    ],
)
def test_malformed_declarations_are_refused_at_once(
    module: Any, signature: str, declared: dict[str, Any], said: str
) -> None:
    made = type("Malformed", (module,), {})
    with pytest.raises(GenomeError, match=f"^planted: .*{said}"):
        primitive("planted", signature, role=Role.ADJUST, source="a test", **declared)(made)


def test_kit_detects_a_deviation_from_the_reference() -> None:
    import_module("tests.plugins.primitive")
    with pytest.raises(AssertionError, match=r"its reference.*differs by up to"):
        check_primitive("squared_score", lambda module, q, k: q @ k.mT)


def test_kit_detects_a_broken_mechanism() -> None:
    with pytest.raises(AssertionError, match="token 0 reaches none"):
        check_mechanism(build(("gelu", "v")))
    mha = build(("scaled_dot_product", "qk"), ("softmax", [0]), ("weighted_sum", [1, "v"]))
    with pytest.raises(AssertionError, match=r"\[\] have none; expected \['wq.weight'\]"):
        check_mechanism(mha, still=["wq.weight"])


def broken_task(**changes: Any) -> Any:
    pointer = import_module("tests.plugins.task").PointerTask
    return type("Broken", (pointer,), {"__module__": __name__, **changes})(name="tiny", **TINY)


def load_by_chance(task: Any) -> Any:
    """Other data at every load."""
    data_seed = int(np.random.default_rng().integers(1 << 30))
    return type(task).__mro__[1].load(task.model_copy(update={"data_seed": data_seed}))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"load": load_by_chance}, "loading twice .*digests"),
        ({"num_tallies": 3}, "num_tallies"),
        ({"order": lambda s, d, e, r: torch.arange(99)}, "99 examples, epoch_size says 64"),
        ({"num_eval_examples": lambda s, d, e: 0}, "0 of 32 examples evaluate"),
        ({"sizes": property(lambda s: ModelSizes(8, 2, 1, 99))}, "called with .*99"),
        ({"loss": lambda s, m, b: (m(b[0]).mean(), len(b[1]))}, "losses .* and"),
    ],
)
def test_kit_detects_a_broken_task(changes: dict[str, Any], said: str) -> None:
    task = broken_task(**changes)
    with pytest.raises(AssertionError, match=f"(?si)^it breaks a promise .*{said}"):
        keep("it", [loads_the_same_data, *MODEL_PROMISES], task, task.load())


def test_kit_detects_a_broken_cost() -> None:
    for value, said in ((lambda g, s: float("nan"), "nan for mha"), (lambda g, s: -1, "-1.0 for")):
        COSTS._members["planted"] = CostMeasure("planted", "B", "a test", value)
        with pytest.raises(AssertionError, match=said):
            check_cost("planted")


def test_kit_detects_an_export_without_content() -> None:
    EXPORTS.register("planted")(ExportFormat(lambda request: "attention"))
    with pytest.raises(AssertionError, match=r"mechanisms have different contents.*mha and gqa"):
        check_export("planted")


class Careless:
    """An algorithm that ignores its seed."""

    def __init__(self, context: Any) -> None:
        self.context, self.rng = context, np.random.default_rng()

    def tell(self, results: Any) -> None:
        pass

    def propose(self, rng: Any, num_failed: int) -> Any:
        return self.context.sample(self.rng)


def test_kit_detects_an_unseeded_algorithm() -> None:
    ALGORITHMS.register("planted")(Careless)
    with pytest.raises(AssertionError, match="two searches of one seed differ"):
        check_algorithm("planted")


def test_kit_detects_a_broken_host() -> None:
    host = import_module("tests.plugins.host")
    model, x = host.PlainAttention(16, 4), torch.randn(2, 5, 16)
    check_host("plain", model, x)
    with pytest.raises(AssertionError, match=r"recognises attention in the model.*recognises none"):
        check_host("plain", nn.Linear(16, 16), x)

    def install(self: Any, module: nn.Module, core: AttentionCore) -> None:
        module.core = core  # which forward does not call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host.PlainHost, "install", install)
        with pytest.raises(AssertionError, match="parameters do not change the outputs"):
            check_host("plain", model, x)
