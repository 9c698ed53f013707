from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from nas.errors import GenomeError, NasError, ViolationError
from nas.genome import Genome
from nas.mechanisms import MECHANISMS
from nas.surgery import swap_attention
from nas.surgery.core import AttentionCore
from nas.surgery.preserving import difference, preserving, starting_at

if TYPE_CHECKING:
    from collections.abc import Callable

    Build = Callable[..., Genome]

TAIL = (4 * 8, 4, 4, 1)  # U, V, b, c of one head
DOT = ("scaled_dot_product", "qk")
LEARNED = {"init": "gate", "gate": "learned"}


def model(layers: int = 3) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 48, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def cores(swapped: nn.Module) -> list[AttentionCore]:
    return [m for m in swapped.modules() if isinstance(m, AttentionCore)]


def score(core: AttentionCore) -> Any:
    return core.get_submodule("qana_0")


def parts(tail: Tensor) -> list[Tensor]:
    """The rows of U, V, b and c of a tail's weight or its gradient."""
    return list(tail.view(4, sum(TAIL), -1).split(TAIL, dim=1))


def test_all_attention_is_swapped_in_the_models_order() -> None:
    encoder = model()
    assert swap_attention(encoder, "qana") == [f"layers.{i}.self_attn" for i in range(3)]
    assert [core.genome for core in cores(encoder)] == [MECHANISMS["qana"].genome] * 3


def test_a_model_may_be_the_attention_itself() -> None:
    attention = nn.MultiheadAttention(32, 4)
    weight = attention.in_proj_weight
    assert swap_attention(attention, "qana") == [""]
    assert attention.in_proj_weight is weight
    assert isinstance(attention, nn.MultiheadAttention)


@pytest.mark.parametrize(
    ("where", "layers"),
    [
        ("layers.1.self_attn", [1]),
        (["layers.2.*", "layers.0.*"], [0, 2]),
        (lambda name, module: "1" in name and module.num_heads == 4, [1]),
    ],
)
def test_where_names_the_attention_to_swap(where: Any, layers: list[int]) -> None:
    encoder = model()
    names = swap_attention(encoder, "qana", where=where)
    assert names == [f"layers.{i}.self_attn" for i in layers]
    assert len(cores(encoder)) == len(layers)


@pytest.mark.parametrize("where", ["layers.7.*", ["layers.0.*", "layers.7.*"], lambda name, m: 0])
def test_a_where_that_finds_nothing_is_an_error(where: Any) -> None:
    encoder = model()
    with pytest.raises(NasError, match=r"where: .* 'layers\.0\.self_attn', 'layers\.1"):
        swap_attention(encoder, "qana", where=where)
    assert not cores(encoder)


def test_the_placement_of_a_genome_chooses_the_layers(genome: Build) -> None:
    nodes = (("qana", "qk"), ("softmax", [0]), ("weighted_sum", [1, "v"]))
    for placement, layers in (("first", [0]), ("alternate", [0, 2])):
        found = swap_attention(model(), genome(*nodes, placement=placement))
        assert found == [f"layers.{i}.self_attn" for i in layers]


def test_a_model_without_known_attention_is_an_error() -> None:
    with pytest.raises(NasError, match=r"Linear has no attention .*MultiheadAttention, timm\."):
        swap_attention(nn.Linear(4, 4), "qana")


def test_swapping_twice_is_an_error() -> None:
    encoder = model()
    swap_attention(encoder, "qana", where=["layers.0.*"])
    kept = cores(encoder)
    with pytest.raises(
        NasError, match=r"'layers\.0\.self_attn' was swapped before and holds .*qan"
    ):
        swap_attention(encoder, "mha")
    assert cores(encoder) == kept
    assert len(swap_attention(encoder, "mha", where=["layers.[12].*"])) == 2


def test_mode_dtype_and_gradients_are_those_of_the_model() -> None:
    encoder = model().double().eval()
    swap_attention(encoder, "qana")
    assert {p.dtype for p in encoder.parameters()} == {torch.float64}
    assert not any(m.training for m in encoder.modules())
    assert all(p.requires_grad for core in cores(encoder) for p in core.parameters())


def test_new_weights_follow_the_global_seed() -> None:
    weights = []
    for _ in range(2):
        encoder = model()
        torch.manual_seed(3)
        swap_attention(encoder, "qana")
        weights.append(score(cores(encoder)[0]).tail.weight)
    assert torch.equal(*weights)


def test_zero_out_trains_v_at_once_and_u_from_the_second_step() -> None:
    encoder = model(1)
    swap_attention(encoder, "qana")
    x, target = torch.randn(2, 5, 32), torch.randn(2, 5, 32)
    before = encoder(x).detach()
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-2)
    sizes = []
    for _ in range(2):
        optimizer.zero_grad()
        (encoder(x) - target).square().mean().backward()
        sizes.append(
            [float(g.abs().max()) for g in parts(score(cores(encoder)[0]).tail.weight.grad)]
        )
        optimizer.step()
    assert sizes[0][0] == 0.0
    assert sizes[0][1] > 1e-6
    assert sizes[1][0] > 1e-6
    assert (encoder(x) - before).abs().max() > 1e-3


def test_paper_zero_says_that_it_never_trains() -> None:
    encoder = model(1)
    x = torch.randn(2, 5, 32)
    before = encoder(x)
    with pytest.warns(UserWarning, match="never trains"):
        swap_attention(encoder, "qana", init="paper_zero")
    torch.testing.assert_close(encoder(x), before, rtol=1e-5, atol=1e-5)
    (encoder(x) - torch.randn(2, 5, 32)).square().mean().backward()
    assert score(cores(encoder)[0]).tail.weight.grad.abs().max() < 1e-7


def qana(genome: Build, **params: Any) -> Genome:
    return genome(("qana", "qk", params), ("softmax", [0]), ("weighted_sum", [1, "v"]))


def test_an_init_is_set_wherever_there_is_one(genome: Build) -> None:
    gated = {**LEARNED, "hidden": 2}
    assert starting_at(qana(genome, hidden=2), "gate") == qana(genome, **gated)
    warm = starting_at(qana(genome, gate="warmup"), "gate")
    assert warm == qana(genome, gate="warmup", init="random")
    assert difference(warm) < 1e-9
    assert starting_at(MECHANISMS["mha"].genome, "gate") == MECHANISMS["mha"].genome
    with pytest.raises(
        GenomeError, match=r"init='zero'.* found str 'zero'; expected one of zero_out"
    ):
        swap_attention(model(), "qana", init="zero")


def test_what_keeps_the_function_is_found_by_computing(genome: Build) -> None:
    for init in ("zero_out", "gate", "paper_zero"):
        assert {"mha", "qana"} <= set(preserving(init))
        assert not {"additive", "gqa", "uniform", "champion_2025"} & set(preserving(init))
    assert difference(qana(genome, init="random")) > 1e-2
    assert difference(qana(genome, rope=True)) > 1e-2
    twice = genome(DOT, ("softmax", [0]), ("weighted_sum", [1, "v"]), ("gelu", [2]))
    assert difference(twice) > 1e-2


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("additive", r"tanh.* differs from softmax attention by .*, such as mha, .*qana"),
        ("sqa", r"q_heads: 1/2, kv_heads: 1/4; expected the projections"),
        ("messages", r"has_wo: False, merge: sum"),
    ],
)
def test_a_mechanism_that_changes_the_model_is_refused(name: str, words: str) -> None:
    encoder = model()
    before = deepcopy(encoder.state_dict())
    with pytest.raises(GenomeError, match=words):
        swap_attention(encoder, name)
    assert encoder.state_dict().keys() == before.keys()


def test_a_genome_that_does_not_type_check_is_refused(genome: Build) -> None:
    with pytest.raises(ViolationError):
        swap_attention(model(), genome(("softmax", "q")))


def test_a_trial_of_a_mechanism_draws_no_random_numbers() -> None:
    torch.manual_seed(0)
    state = torch.get_rng_state()
    difference(starting_at(MECHANISMS["qana"].genome, "zero_out"))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("k", [7, 8, 300])
@pytest.mark.parametrize("op", ["topk_softmax", "topk_filter"])
def test_what_drops_keys_is_refused_however_many_it_keeps(op: str, k: int) -> None:
    score = {"op": "scaled_dot_product", "inputs": ["q", "k"]}
    nodes = [score, {"op": op, "inputs": [0], "params": {"k": k}}]
    if op == "topk_filter":
        nodes.append({"op": "softmax", "inputs": [1]})
    nodes.append({"op": "weighted_sum", "inputs": [len(nodes) - 1, "v"]})
    with pytest.raises(GenomeError, match="differs from softmax attention"):
        swap_attention(nn.MultiheadAttention(8, 2), Genome.from_dict({"graph_def": nodes}))


@pytest.mark.parametrize("where", [[], 3])
def test_where_must_say_something(where: object) -> None:
    with pytest.raises(NasError, match="where: found"):
        swap_attention(nn.MultiheadAttention(8, 2), "qana", where=where)  # type: ignore[arg-type]
