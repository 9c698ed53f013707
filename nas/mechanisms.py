"""The named mechanisms: attention as published, as genomes of ours.

Usable wherever a genome is, and seeded into a search by the space that lists them. Head counts
are shares of the backbone's heads, so that every mechanism exists at every size.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from nas.canonical import canonicalise
from nas.config import near
from nas.errors import GenomeError, SpaceError
from nas.genome import Genome, Node, Projections
from nas.validation import validate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nas.space import SearchSpace
    from nas.validation import Policy


@dataclass(frozen=True)
class Mechanism:
    """A genome with a name, the paper it comes from and one line about it."""

    name: str
    genome: Genome
    paper: str
    about: str


def mechanism(name: str) -> Mechanism:
    """The mechanism of that name.

    Raises:
        GenomeError: there is none; the nearest name is suggested.
    """
    if name not in MECHANISMS:
        raise GenomeError(
            f"there is no mechanism {name!r}{near(name, MECHANISMS)}; "
            f"expected one of {', '.join(MECHANISMS)}."
        )
    return MECHANISMS[name]


def seeds(space: SearchSpace, policy: Policy) -> tuple[Mechanism, ...]:
    """The mechanisms that a space seeds, each a legal point of it.

    Raises:
        SpaceError: one is not; the reason is given.
    """
    found = []
    for name in space.mechanisms:
        try:
            seed = mechanism(name)
        except GenomeError as error:
            raise SpaceError(f"space {space.name}, mechanisms: {error}") from None
        reason = space.excludes(canonicalise(seed.genome))
        if reason is None:
            reason = next((v.message for v in validate(seed.genome, policy)), None)
        if reason is not None:
            raise SpaceError(f"space {space.name}, mechanisms: {name} {reason}.")
        found.append(seed)
    return tuple(found)


def _graph(*nodes: tuple[Any, ...], placement: str = "all", **projections: Any) -> Genome:
    """A genome from (op, inputs) or (op, inputs, params) triples."""
    built = tuple(
        Node(op, tuple(inputs), tuple(sorted(params[0].items())) if params else ())
        for op, inputs, *params in nodes
    )
    return Genome(built, Projections(**projections), placement)


def _dot_product(**projections: Any) -> Genome:
    return _graph(
        ("scaled_dot_product", "qk"), ("softmax", [0]), ("weighted_sum", [1, "v"]), **projections
    )


def _scored(*score: Any, **keywords: Any) -> Genome:
    """Standard attention with another score in place of the dot product."""
    return _graph(
        (score[0], "qk", *score[1:]), ("softmax", [0]), ("weighted_sum", [1, "v"]), **keywords
    )


_VASWANI = "Vaswani et al. 2017"
_SQA = "Sparse Query Attention"
_MESSAGES = "Patterns and Messages"
_PUBLISHED: dict[str, Any] = {"has_wq": False, "has_wk": False}

_ALL = (
    Mechanism("mha", _dot_product(), _VASWANI, "multi-head attention"),
    Mechanism(
        "gqa",
        _dot_product(kv_heads="1/4"),
        "Ainslie et al. 2023",
        "a quarter of the key and value heads",
    ),
    Mechanism("mqa", _dot_product(kv_heads="one"), "Shazeer 2019", "one key and value head"),
    Mechanism(
        "sqa",
        _dot_product(q_heads="1/2", kv_heads="1/4"),
        _SQA,
        "half the query heads, a quarter of the key and value heads",
    ),
    Mechanism(
        "ssqa", _dot_product(q_heads="1/2", kv_heads="1/2"), _SQA, "symmetric: half of all heads"
    ),
    Mechanism(
        "xsqa", _dot_product(q_heads="1/4", kv_heads="1/4"), _SQA, "extreme: a quarter of all heads"
    ),
    Mechanism(
        "xsmqa",
        _dot_product(q_heads="1/4", kv_heads="one"),
        _SQA,
        "extreme: a quarter of the query heads, one key and value head",
    ),
    Mechanism(
        "lsqa",
        _dot_product(q_heads="3/4", kv_heads="1/4"),
        _SQA,
        "light: three quarters of the query heads",
    ),
    Mechanism(
        "rsqa",
        _dot_product(q_heads="1/4", kv_heads="1/2"),
        _SQA,
        "reverse: fewer query heads than key and value heads",
    ),
    Mechanism(
        "qana",
        _scored("qana"),
        "Vermillion 2025 (QANA)",
        "each query is a small network that scores the keys",
    ),
    Mechanism(
        "neural_attention",
        _scored("neural_attention", placement="first"),
        "Neural Attention",
        "a shared network scores each pair; first layer only",
    ),
    Mechanism(
        "additive",
        _scored("additive_attention_score"),
        "Bahdanau et al. 2015",
        "one hidden tanh layer over the sum of query and key",
    ),
    Mechanism(
        "patterns",
        _dot_product(has_wk=False, raw="shared"),
        _MESSAGES,
        "queries and keys merged: every head matches patterns against the whole token",
    ),
    Mechanism(
        "messages",
        _dot_product(has_wo=False, merge="sum"),
        _MESSAGES,
        "values and outputs merged: heads send messages that are summed",
    ),
    Mechanism(
        "patterns_and_messages",
        _dot_product(has_wk=False, has_wo=False, raw="shared", merge="sum"),
        _MESSAGES,
        "both merged: two matrices a head",
    ),
    Mechanism(
        "uniform",
        _graph(
            ("scaled_dot_product", "kk"), ("uniform", [0]), ("weighted_sum", [1, "v"]), **_PUBLISHED
        ),
        "control",
        "the mean of all values: no attention",
    ),
    Mechanism(
        "champion_2025",
        _graph(
            ("scaled_dot_product", "vk"),
            ("sigmoid", [0]),
            ("gelu", "v"),
            ("layer_norm", [2]),
            ("weighted_sum", [1, 3]),
            **_PUBLISHED,
        ),
        "Evolving Attention",
        "the published champion, query-less",
    ),
    Mechanism(
        "champion_control",
        _graph(
            ("scaled_dot_product", "vk"), ("softmax", [0]), ("weighted_sum", [1, "v"]), **_PUBLISHED
        ),
        "control",
        "standard attention with the champion's two projections",
    ),
)

MECHANISMS: Final[Mapping[str, Mechanism]] = MappingProxyType({m.name: m for m in _ALL})
