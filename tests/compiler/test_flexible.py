"""FlexAttention: equal to the interpreter, by torch's own evaluation and by the plain formula.

On a CPU FlexAttention has no gradients. Those of the changes are checked with ``over_pairs`` in its
place, which calls them for all pairs at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxOutput

from nas.compiler import building, make_plan
from nas.compiler.kernels import flexible
from nas.compiler.lowering import distributed, flexible_calls
from nas.genome import Genome, Visibility
from nas.genome.mechanisms import mechanism
from tests.compiler.test_compiler import both, check_equal, masks
from tests.compiler.test_lowering import CASES as CASES_OF_LOWERING
from tests.compiler.test_lowering import DOT, GATE, attend
from tests.genomes import build

WINDOW = Visibility(12, 2)
CASES: dict[str, Genome] = {
    "gates": build(*attend(DOT, GATE, ("decay", [0, 1])), kv_heads="1/4"),
    "gates_and_sink": build(*attend(DOT, GATE, ("decay", [0, 1]), normaliser="softmax_sink")),
    "capped": build(*attend(DOT, ("temperature", [0]), ("softcap", [1], {"cap": 0.5}))),
    "alibi": build(*attend(DOT, ("alibi", [0]), ("key_bias", [1, "k"])), qk_dim="1/2"),
    "sink": build(*attend(DOT, normaliser="softmax_sink"), kv_heads="1/4"),
    "zero_sink": build(*attend(DOT, normaliser="softmax_one")),
    "sigmoid": build(*attend(DOT, normaliser="sigmoid")),
    "gates_and_sigmoid": build(*attend(DOT, GATE, ("decay", [0, 1]), normaliser="sigmoid")),
    "capped_gates": build(*attend(DOT, GATE, ("decay", [0, 1]), ("softcap", [2], {"cap": 0.5}))),
    "sees_later_tokens": build(
        *(("short_conv", "q", {"causal": False}), ("scaled_dot_product", [0, "k"])),
        *(("softmax_sink", [1]), ("weighted_sum", [2, "v"])),
    ),
    "window": replace(build(*attend(DOT), kv_heads="1/4"), visibility=WINDOW),
    "sinks_in_a_window": replace(
        build(*attend(DOT, GATE, ("decay", [0, 1]), normaliser="softmax_sink")), visibility=WINDOW
    ),
}


def over_pairs(
    query: Tensor,
    key: Tensor,
    values: Tensor,
    score_mod: Callable[..., Tensor],
    blocks: Any,
    *,
    scale: float,
    return_aux: Any,
) -> tuple[Tensor, AuxOutput]:
    """FlexAttention, written plainly."""
    batch, heads, queries, _ = query.shape
    b, h, i, j = torch.meshgrid(
        *(torch.arange(n) for n in (batch, heads, queries, key.shape[2])), indexing="ij"
    )
    scores = score_mod(query @ key.mT * scale, b, h, i, j)
    if blocks is not None:
        scores = scores.masked_fill(~blocks.mask_mod(b, h, i, j), -torch.inf)
    sums = scores.logsumexp(dim=-1)
    weights = (scores - sums.clamp(min=-1e9)[..., None]).exp()
    return weights @ values, AuxOutput(lse=sums)


@pytest.fixture(autouse=True)
def _every_call_is_flexible(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(flexible, "is_flexible", lambda query, values: True)
    building._load.cache_clear()
    yield
    building._load.cache_clear()


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("name", CASES)
def test_values_equal_the_interpreter(name: str) -> None:
    fast, plain = both(CASES[name], 64, 4)
    x, given = torch.randn(2, 40, 64, dtype=torch.float64), masks(40)
    causal = {"is_causal": name != "sees_later_tokens"}
    for options in (causal, given["mask"], given["row"] | causal):
        with torch.no_grad():
            torch.testing.assert_close(fast(x, **options), plain(x, **options))


@pytest.mark.parametrize("tokens", [5, 64, 200, pytest.param(1024, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CASES)
def test_gradients_equal_the_interpreter(
    name: str, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flexible, "flex_attention", over_pairs)
    causal = {"is_causal": name != "sees_later_tokens"}
    check_equal(CASES[name], tokens, {}, masks(tokens)["mask"] | causal)


def test_other_calls_stay() -> None:
    for name in ("mha", "rope:kv_heads=1/4", "differential", "uniform", "linear", "talking_heads"):
        assert not flexible_calls(distributed(make_plan(mechanism(name).genome)))
    mean_minus_sink = build(*CASES_OF_LOWERING["difference"][0])
    assert len(flexible_calls(distributed(make_plan(mean_minus_sink)))) == 1
