"""Costs of mechanisms at one or several lengths: a table, and the answer of ``nas cost``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from nas.compiler import make_plan
from nas.costs import attention_cost
from nas.errors import GenomeError
from nas.mechanisms import mechanism
from nas.report.table import Column, say, say_table
from nas.report.units import header, human

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from nas.costs import Cost
    from nas.genome import Genome
    from nas.sources import Source

STANDARD: Final = "mha"


@dataclass(frozen=True)
class Sizes:
    """The sizes of one block that costs and source are given at."""

    dim: int = 64
    heads: int = 4
    tokens: int = 65
    qkv_bias: bool = False

    def __str__(self) -> str:
        bias = ", q/k/v biases" if self.qkv_bias else ""
        return f"dim {self.dim}, {self.heads} heads, {self.tokens:,} tokens{bias}"


@dataclass(frozen=True)
class Priced:
    """What a block costs; None where the mechanism does not exist, and ``problem`` says why."""

    cost: Cost | None
    problem: str = ""


@dataclass(frozen=True)
class Block:
    """The sizes at which blocks are compared; ``lengths`` in tokens, from short to long."""

    dim: int
    heads: int
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class Costed:
    """A mechanism and its cost at each of a block's lengths."""

    source: Source
    costs: dict[int, Cost]


def remarks(genome: Genome, heads: int) -> list[str]:
    """What a person should know of a genome in a backbone with so many heads, in sentences."""
    return [f"{text}." for text in make_plan(genome).remarks(heads)]


def costed(sources: Sequence[Source], block: Block) -> list[Costed]:
    """Count each mechanism at each length.

    Raises:
        GenomeError, ViolationError: a mechanism does not exist at this size.
    """
    count = partial(attention_cost, dim=block.dim, heads=block.heads)
    return [Costed(s, {n: count(s.genome, tokens=n) for n in block.lengths}) for s in sources]


def price(genome: Genome, sizes: Sizes) -> Priced:
    """The cost of one block, if it exists at these sizes."""
    try:
        return Priced(attention_cost(genome, **asdict(sizes)))
    except GenomeError as error:
        return Priced(None, f"It does not exist at these sizes: {error}")


def relative_columns(title: str, cost: Cost, sizes: Sizes) -> list[Column]:
    """A row a cost, and how many times standard attention's it is."""
    own = cost.to_dict()
    standard = attention_cost(mechanism(STANDARD).genome, **asdict(sizes)).to_dict()
    ratios = (f"{own[n] / standard[n]:.2f} × {STANDARD}" if standard[n] else "" for n in own)
    return [
        Column("", tuple(map(header, own))),
        Column(title, tuple(map(human, own.values())), "right"),
        Column("", tuple(ratios), style="dim", rank=1),
    ]


def cost_answer(found: Sequence[Costed], block: Block) -> Any:
    """The JSON answer of ``nas cost``: one object for one source at one length, else a list.

    With several lengths each object says which source and length it is of.
    """
    answers = [
        ({"source": one.source.text, "tokens": n} if len(block.lengths) > 1 else {})
        | one.costs[n].to_dict()
        for one in found
        for n in block.lengths
    ]
    return answers[0] if len(answers) == 1 else answers


def show_costs(console: Console, found: Sequence[Costed], block: Block) -> None:
    """Print what was counted."""
    sizes = f"dim {block.dim}, heads {block.heads}"
    if len(block.lengths) == 1:
        say(console, f"{sizes}, {block.lengths[0]:,} tokens, batch 1:", "")
        say_table(console, _all_counts(found, block.lengths[0]))
    else:
        say(console, f"Multiply-adds by sequence length ({sizes}, batch 1):", "")
        say_table(console, _macs_by_length(found, block.lengths))
        say(console, "", "At every length:", "")
        say_table(console, _without_length(found))
    for one in found:
        told = remarks(one.source.genome, block.heads)
        say(console, *(f"{one.source.name}: {remark}" for remark in told))


def _all_counts(found: Sequence[Costed], tokens: int) -> list[Column]:
    costs = [one.costs[tokens].to_dict() for one in found]
    named = [
        Column(name.replace("_", " "), tuple(f"{cost[name]:,}" for cost in costs), "right")
        for name in costs[0]
    ]
    return [_names(found), *named]


def _macs_by_length(found: Sequence[Costed], lengths: Sequence[int]) -> list[Column]:
    by_length = {n: tuple(human(one.costs[n].macs) for one in found) for n in lengths}
    return [_names(found), *(Column(f"{n:,}", by_length[n], "right") for n in lengths)]


def _without_length(found: Sequence[Costed]) -> list[Column]:
    # A mechanism with weights for each position has other parameters at another length.
    columns = [
        Column(header(name), tuple(_range(one, name) for one in found), "right")
        for name in ("params", "kv_cache_bytes_per_token")
    ]
    return [_names(found), *columns]


def _range(one: Costed, name: str) -> str:
    values = [getattr(cost, name) for cost in one.costs.values()]
    least, most = min(values), max(values)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _names(found: Sequence[Costed]) -> Column:
    return Column("mechanism", tuple(one.source.name for one in found))
