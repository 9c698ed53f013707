"""flash-linear-attention's functions in place of sums: equal to the interpreter.

Fla's kernels need a GPU, so that its plain versions of the same functions take their place here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from nas.compiler import building, make_plan
from nas.compiler.kernels import twins
from nas.compiler.lowering import twin_calls
from nas.genome.mechanisms import mechanism
from tests.compiler.test_compiler import both, values_and_gradients

pytest.importorskip("fla.ops", reason="flash-linear-attention is not installed")

FUNCTIONS = {
    "linear": "chunk_simple_gla",
    "retnet": "chunk_simple_gla",
    "mamba2": "chunk_simple_gla",
    "gla": "chunk_gla",
    "hgrn2": "chunk_gla",
    "deltanet": "chunk_delta_rule",
    "gated_deltanet": "chunk_gated_delta_rule",
    "kda": "chunk_kda",
    "stick_breaking": "parallel_stickbreaking_attn",
}


def _plain() -> dict[str, Callable[..., Any]]:
    """Return fla's plain versions of the functions that are used, by name."""
    from fla.ops.delta_rule.naive import delta_rule_recurrence
    from fla.ops.gated_delta_rule.naive import naive_recurrent_gated_delta_rule
    from fla.ops.gla.naive import naive_recurrent_gla
    from fla.ops.kda.naive import naive_recurrent_kda
    from fla.ops.simple_gla.naive import naive_recurrent_simple_gla
    from fla.ops.stickbreaking_attn.naive import naive_stickbreaking_attn

    def scaled(query: Tensor, scale: float) -> Tensor:
        return query * (scale * query.shape[-1] ** 0.5)  # where the plain version divides by it

    def simple(q: Tensor, k: Tensor, v: Tensor, *, scale: float, g: Tensor | None = None) -> Any:
        gates = q.new_zeros(q.shape[:3]) if g is None else g
        return naive_recurrent_simple_gla(q, k, v, gates, scale=scale)

    def delta(q: Tensor, k: Tensor, v: Tensor, *, scale: float, beta: Tensor) -> Any:
        heads = (x.transpose(1, 2) for x in (scaled(q, scale), k, v, beta))
        return delta_rule_recurrence(*heads)[0].transpose(1, 2), None

    return {
        "chunk_simple_gla": simple,
        "chunk_gla": lambda q, k, v, *, scale, g: naive_recurrent_gla(scaled(q, scale), k, v, g),
        "chunk_delta_rule": delta,
        "chunk_gated_delta_rule": naive_recurrent_gated_delta_rule,
        "chunk_kda": naive_recurrent_kda,
        "parallel_stickbreaking_attn": naive_stickbreaking_attn,
    }


@pytest.fixture(autouse=True)
def called(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Use fla for all operands; the list has the names of its functions that were called."""
    plain, names = _plain(), list[str]()

    def twin(name: str) -> Callable[..., tuple[Tensor, Tensor]]:
        names.append(name)
        # The plain versions compute in float32, and some return it.
        return lambda q, *others, **more: (plain[name](q, *others, **more)[0].to(q.dtype), q)

    monkeypatch.setattr(twins, "twin", twin)
    monkeypatch.setattr(twins, "has_twin", lambda query, values: True)
    building._load.cache_clear()
    yield names
    building._load.cache_clear()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_fla_computes_what_the_interpreter_does(name: str, called: list[str]) -> None:
    genome = mechanism(name).genome
    blocks = both(genome, 32, 4)
    padding = torch.arange(150) >= torch.tensor([[150], [90]])
    for tokens, masks in ((5, {}), (150, {}), (150, {"key_padding_mask": padding})):
        called.clear()
        x = torch.randn(2, tokens, 32, dtype=torch.float64)
        given = {"is_causal": True, **masks}
        ours, expected = (values_and_gradients(block, x, **given) for block in blocks)
        for own, other in zip(ours, expected, strict=True):
            torch.testing.assert_close(
                own, other, rtol=1e-3, atol=1e-3 * float(other.detach().abs().max())
            )
        assert called == ([] if masks else [FUNCTIONS[name]])


def test_the_delta_rule_is_fused_only_with_sums_over_its_own_keys() -> None:
    genome = mechanism("gated_deltanet").genome
    (score,) = (i for i, node in enumerate(genome.nodes) if node.op == "gated_product")
    nodes = [*genome.nodes]
    nodes[score] = replace(nodes[score], inputs=("q", "k", nodes[score].inputs[2]))
    (call,) = twin_calls(make_plan(genome)).values()
    (other,) = twin_calls(make_plan(replace(genome, nodes=tuple(nodes)))).values()
    assert call.rule is not None
    assert other.rule is None


def test_autocast_decides_the_type_except_of_float64() -> None:
    assert twins.computed_dtype(torch.ones(1)) == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert twins.computed_dtype(torch.ones(1)) == torch.bfloat16
        assert twins.computed_dtype(torch.ones(1, dtype=torch.float64)) == torch.float64
