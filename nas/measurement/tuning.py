"""Which way of computing each pattern is the fastest here: every way timed at the shapes in use.

    ways = measure_ways(Shapes(dim=64, heads=4, tokens=65, train_batch=64, judge_batch=128),
                        device="cpu", dtype=torch.bfloat16)

Some seconds on a processor. The ways take turns, so that others' work disturbs all alike, and
of each the fastest round counts. What is chosen changes how sums are rounded, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import torch

from nas.compiler.means import linear_attention
from nas.compiler.runtime import dot_product_attention
from nas.compiler.shaped import shaped_attention
from nas.kernels import place, using
from nas.measurement.passes import seconds
from nas.primitives.hidden_units import UnitScores
from nas.primitives.pair_layers import LayerScores
from nas.primitives.pair_scores import attend_pairs
from nas.primitives.query_network import NetworkScores
from nas.primitives.threshold import threshold_weights

if TYPE_CHECKING:
    from torch import Tensor

    from nas.primitives.pair_scores import PairScores

    Work: TypeAlias = Callable[[], None]

ROUNDS: Final = 3
ENOUGH_PAIRS: Final = 2**20
"""Pairs of tokens, over batch and heads, beyond which time is in proportion to the batch."""
MOST_PAIRS: Final = 2**26
"""Pairs of one sequence beyond which its scores alone are 256 MiB: not measured."""
CLEARLY: Final = 0.95
VALUES: Final = 16
"""Numbers of a value, where a pattern's width says nothing about it."""


@dataclass(frozen=True)
class Shapes:
    """The sizes at which a task calls its attention.

    Attributes:
        train_batch, judge_batch: sequences at once, with gradients and without.
    """

    dim: int
    heads: int
    tokens: int
    train_batch: int
    judge_batch: int


@dataclass(frozen=True)
class Pattern:
    """Something that can be computed in several ways.

    Attributes:
        widths: what ``nas.kernels.way`` is told as width, each with the heads that go with it.
        operands: from batch, heads, tokens and width, the shapes of what ``compute`` takes.
        compute: from the width and the operands.
        devices: where there is a choice among just these ways.
    """

    name: str
    ways: tuple[str, ...]
    widths: Callable[[Shapes], dict[int, int]]
    operands: Callable[[int, int, int, int], tuple[tuple[int, ...], ...]]
    compute: Callable[..., Tensor]
    devices: tuple[str, ...] = ("cpu", "cuda")


def _streams(shapes: Shapes) -> dict[int, int]:
    """A head's width, and the model's, which one head has that reads what nothing projects."""
    return {shapes.dim // shapes.heads: shapes.heads, shapes.dim: 1}


def _heads(shapes: Shapes) -> dict[int, int]:
    """A head's width, where there are several."""
    return {shapes.dim // shapes.heads: shapes.heads} if shapes.heads > 1 else {}


def _units(*counts: int) -> Callable[[Shapes], dict[int, int]]:
    """Numbers of hidden units, or other numbers that have nothing to do with a stream's width."""
    return lambda shapes: dict.fromkeys(counts, shapes.heads)


def _attended(score: PairScores, given: tuple[Tensor, ...]) -> Tensor:
    """Values, the last of the tensors given, weighed by such scores: what they are mostly for.

    What is chosen here holds for such scores alone, too.
    """
    return attend_pairs((score, given[:-1]), given[-1], None)


PATTERNS: Final = (
    Pattern(
        "dot_product",
        ("explicit", "fused"),
        _streams,
        lambda b, h, n, w: ((b, h, n, w),) * 3,
        lambda w, query, key, values: dot_product_attention(query, key, values, None),
    ),
    Pattern(
        "uneven_dot_product",
        ("explicit", "fused"),
        _heads,
        lambda b, h, n, w: (*((b, h, n, w),) * 2, (b, h, n, h * w)),
        lambda w, query, key, values: dot_product_attention(query, key, values, None),
    ),
    Pattern(
        "shaped_attention",
        ("explicit", "sloped"),
        _heads,
        lambda b, h, n, w: (*((b, h, n, w),) * 3, (h,)),
        lambda w, query, key, values, slopes: shaped_attention(
            query, key, values, None, slopes=slopes
        ),
        devices=("cpu",),
    ),
    Pattern(
        "linear_attention",
        ("pairs", "sums"),
        _streams,
        lambda b, h, n, w: ((b, h, n, w),) * 3,
        lambda w, query, key, values: linear_attention(query, key, values, None),
    ),
    Pattern(
        "hidden_units",
        ("planes", "pieces"),
        _units(4, 16),
        lambda b, h, n, m: ((b, h, n, m), (b, h, n, m), (m,), (1,), (b, h, n, VALUES)),
        lambda m, *given: _attended(UnitScores("gelu"), given),
    ),
    Pattern(
        "query_network",
        ("planes", "pieces"),
        _streams,
        lambda b, h, n, w: (
            *((b, h, n, w),) * 2,
            (b, h, n, 4, w),
            (b, h, n, w),
            *((b, h, n, 4),) * 2,
            (b, h, n, 1),
            (b, h, n, w),
        ),
        lambda w, *given: _attended(NetworkScores(w**-0.5, "gelu"), given),
    ),
    Pattern(
        "pair_layers",
        ("planes", "pieces"),
        _units(16),
        lambda b, h, n, m: (
            *((b, h, n, m),) * 2,
            *((m // 2, m), (m // 2,), (1, m // 2), (1,)),
            (b, h, n, VALUES),
        ),
        lambda m, *given: _attended(LayerScores(), given),
    ),
    Pattern(
        "threshold",
        ("sort", "newton"),
        _units(1, 2),
        lambda b, h, n, power: ((b, h, n, n),),
        lambda power, scores: threshold_weights(scores, None, power),
        devices=("cpu",),
    ),
)


def measure_ways(
    shapes: Shapes, *, device: str, dtype: torch.dtype, rounds: int = ROUNDS
) -> dict[str, dict[int, str]]:
    """The fastest way of each pattern, by place and width, for ``nas.kernels.using``.

    Args:
        dtype: float32, or the type that autocast computes in.

    Returns:
        Nothing about patterns that have more pairs of tokens than memory shall hold.
    """
    found: dict[str, dict[int, str]] = {}
    precision = torch.autocast(torch.device(device).type, dtype, enabled=dtype != torch.float32)
    with torch.random.fork_rng(devices=[]), precision:
        for pattern in PATTERNS:
            if torch.device(device).type not in pattern.devices:
                continue
            for width, heads in pattern.widths(shapes).items():
                if heads * shapes.tokens**2 > MOST_PAIRS:
                    continue
                for is_trained in (True, False):
                    operands = _operands(pattern, shapes, (heads, width), is_trained)
                    operands = [x.to(device, dtype).requires_grad_(is_trained) for x in operands]
                    with torch.set_grad_enabled(is_trained):
                        where = place(pattern.name, operands[0], shapes.tokens)
                        work = _pass(pattern, width, operands)
                        taken = _seconds_by_way(pattern, work, where, width, rounds)
                    found.setdefault(where, {})[width] = _clearly_fastest(taken)
    return found


def _operands(
    pattern: Pattern, shapes: Shapes, size: tuple[int, int], is_trained: bool
) -> list[Tensor]:
    """Random operands, of as many sequences as the task has at once, or enough of them."""
    heads, width = size
    wanted = shapes.train_batch if is_trained else shapes.judge_batch
    batch = max(1, min(wanted, ENOUGH_PAIRS // (heads * shapes.tokens**2)))
    return [torch.randn(shape) for shape in pattern.operands(batch, heads, shapes.tokens, width)]


def _pass(pattern: Pattern, width: int, operands: list[Tensor]) -> Work:
    """The pattern once, and its gradients where they are on."""

    def forward() -> None:
        pattern.compute(width, *operands)

    def forward_backward() -> None:
        torch.autograd.grad(pattern.compute(width, *operands), operands, above)

    if not torch.is_grad_enabled():
        return forward
    above = torch.ones_like(pattern.compute(width, *operands))
    return forward_backward


def _seconds_by_way(
    pattern: Pattern, work: Work, where: str, width: int, rounds: int
) -> dict[str, float]:
    """The fastest round of each way; the first one, which finds nothing in caches, left out."""
    taken: dict[str, list[float]] = {way: [] for way in pattern.ways}
    for _ in range(rounds + 1):
        for way, own in taken.items():
            with using({where: {width: way}}):
                own.append(seconds(work, str(where.split()[2])))
    return {way: min(own[1:]) for way, own in taken.items()}


def _clearly_fastest(taken: dict[str, float]) -> str:
    """The first way, unless a later one is faster by more than noise."""
    best = next(iter(taken))
    for way in taken:
        if taken[way] < CLEARLY * taken[best]:
            best = way
    return best
