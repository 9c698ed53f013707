"""``nas.testing`` says in a sentence what is broken; the examples keep their promises."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nas.costs import COSTS, CostMeasure
from nas.exporting import EXPORTS, ExportFormat
from nas.genome import ModelSizes
from nas.genome.mechanisms import MECHANISMS
from nas.genome.primitives import Role
from nas.genome.primitives.base import REGISTRY, pair_macs, primitive
from nas.searching.algorithm import ALGORITHMS
from nas.surgery.core import AttentionCore
from nas.surgery.hosts import HOSTS
from nas.tasks import TASKS
from nas.testing import (
    check_algorithm,
    check_cost,
    check_export,
    check_host,
    check_mechanism,
    check_primitive,
    check_task,
)
from nas.testing.promises import require_same
from tests.contracts.test_plugins import TINY
from tests.genomes import build

FAMILIES = (REGISTRY, MECHANISMS, COSTS, EXPORTS, ALGORITHMS, HOSTS, TASKS)


@pytest.fixture(autouse=True)
def _leaves_nothing() -> Iterator[None]:
    """What is planted is not there for other tests."""
    before = [dict(family) for family in FAMILIES]
    yield
    for family, members in zip(FAMILIES, before, strict=True):
        family._members = members  # type: ignore[assignment]
    for name in [m for m in sys.modules if m.startswith("tests.plugins.")]:
        del sys.modules[name]


def squared(module: Any, query: Tensor, key: Tensor) -> Tensor:
    return (query @ key.mT) ** 2 / query.shape[-1]


def test_example_plugins_pass_the_conformance_kit() -> None:
    for name in ("primitive", "mechanism", "metric", "objective", "algorithm", "export"):
        import_module(f"tests.plugins.{name}")
    check_primitive("squared_score", squared)
    check_mechanism(build(("squared_score", "qk"), ("softmax", [0]), ("weighted_sum", [1, "v"])))
    check_task(TASKS["honest_pointer"](name="tiny", **TINY))  # type: ignore[call-arg]
    check_cost("cache_bytes_at_4096")
    check_algorithm("hill-climbing")
    check_export("dot")


class Planted(nn.Module):
    """A score."""

    rule: Callable[[Any, Tensor, Tensor], Tensor]

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return self.rule(query, key)


def planted(forward: Callable[[Any, Tensor, Tensor], Tensor], **declared: Any) -> str:
    """A score with one fault: its name."""
    Planted.rule = forward  # type: ignore[method-assign]
    given = {"notation": "{query}·{key}", "source": "a test", "macs": pair_macs} | declared
    signature = "query: tokens[h,w], key: tokens[h,w] -> scores[h]"
    primitive("planted", signature, role=Role.SCORE, **given)(Planted)
    return "planted"


def looking_ahead(module: Any, query: Tensor, key: Tensor) -> Tensor:
    return query @ (key + key.mean(dim=2, keepdim=True)).mT


class Wrong(torch.autograd.Function):
    """An exponential whose gradient is none."""

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
        (lambda m, q, k: Wrong.apply(q @ k.mT), {}, "gradients equal finite differences.*Jacobian"),
        (looking_ahead, {}, "a hidden key changes the result by"),
        (
            lambda m, q, k: q @ k.mT,
            {"is_causal_safe": lambda p: False},
            "later tokens, and sees none",
        ),
        (lambda m, q, k: torch.log(q @ k.mT), {}, "by inf"),
        (lambda m, q, k: q @ k.mT, {"macs": lambda s, p: 1}, "macs is 1 at .*torch counts 200"),
        (
            lambda m, q, k: q @ k.mT,
            {"notation": "{keys}"},
            "notation names only ports.*KeyError: 'keys'",
        ),
        (lambda m, q, k: q @ k.mT, {"source": ""}, "it names no source"),
        (lambda m, q, k: q @ k.mT + torch.rand(()), {}, "of a seed differ|Jacobian|hidden key"),
    ],
)
def test_kit_detects_a_broken_primitive(forward: Any, declared: dict[str, Any], said: str) -> None:
    with pytest.raises(AssertionError, match=rf"(?si)^the primitive planted breaks .*({said})"):
        check_primitive(planted(forward, **declared))


def test_kit_detects_a_deviation_from_the_reference() -> None:
    import_module("tests.plugins.primitive")
    with pytest.raises(AssertionError, match=r"its reference.*differs by up to"):
        check_primitive("squared_score", lambda module, q, k: q @ k.mT)


def test_kit_detects_a_broken_mechanism() -> None:
    found = build(("gelu", "v"))  # tokens never meet
    with pytest.raises(AssertionError, match="token 0 reaches none"):
        check_mechanism(found)
    still = build(("scaled_dot_product", "qk"), ("softmax", [0]), ("weighted_sum", [1, "v"]))
    with pytest.raises(AssertionError, match=r"\[\] have none; expected \['wq.weight'\]"):
        check_mechanism(still, still=["wq.weight"])


def broken_task(**changes: Any) -> Any:
    pointer = import_module("tests.plugins.task").PointerTask
    return type("Broken", (pointer,), {"__module__": __name__, **changes})(name="tiny", **TINY)


def unlike(task: Any) -> Any:
    """Data that are others at every load."""
    return (
        type(task)
        .__mro__[1]
        .load(task.model_copy(update={"data_seed": int(np.random.default_rng().integers(1 << 30))}))
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"load": unlike}, "loading twice .*digests"),
        ({"num_tallies": 3}, "num_tallies"),
        ({"order": lambda s, d, e, r: torch.arange(99)}, "99 examples, epoch_size says 64"),
        ({"num_eval_examples": lambda s, d, e: 0}, "0 of 32 examples judge"),
        ({"sizes": property(lambda s: ModelSizes(8, 2, 1, 99))}, "called with .*99"),
        ({"loss": lambda s, m, b: (m(b[0]).mean(), len(b[1]))}, "losses .* and"),
    ],
)
def test_kit_detects_a_broken_task(changes: dict[str, Any], said: str) -> None:
    from nas.testing.promises import keep
    from nas.testing.tasks import MODEL_PROMISES, loads_the_same_data

    task = broken_task(**changes)
    with pytest.raises(AssertionError, match=f"(?si)^it breaks a promise .*{said}"):
        keep("it", [loads_the_same_data, *MODEL_PROMISES], task, task.load())


def test_kit_detects_a_broken_cost() -> None:
    for value, said in ((lambda g, s: float("nan"), "nan for mha"), (lambda g, s: -1, "-1.0 for")):
        COSTS._members["planted"] = CostMeasure("planted", "B", "a test", value)
        with pytest.raises(AssertionError, match=said):
            check_cost("planted")


def test_kit_detects_an_export_without_content() -> None:
    EXPORTS.register("planted")(ExportFormat(".txt", lambda subject: "attention"))
    with pytest.raises(AssertionError, match=r"mechanisms have different contents.*mha and gqa"):
        check_export("planted")


class Careless:
    """Draws from a generator of its own, which no seed reaches."""

    def __init__(self, context: Any) -> None:
        self.context, self.rng = context, np.random.default_rng()

    def tell(self, told: Any) -> None:
        """Nothing is learned."""

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
        module.core = core  # which nobody asks

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host.PlainHost, "install", install)
        with pytest.raises(AssertionError, match="parameters do not change the outputs"):
            check_host("plain", model, x)


def test_require_same_states_the_difference() -> None:
    one = torch.tensor([1.0, float("inf")])
    require_same(one, one.clone(), "it")
    with pytest.raises(AssertionError, match=r"it differs by up to 1; expected at most 1e-12"):
        require_same(one, one - 1, "it")
    with pytest.raises(AssertionError, match=r"it has the shape \(2,\); expected \(1,\)"):
        require_same(one, one[:1], "it")
