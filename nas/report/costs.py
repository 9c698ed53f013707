"""Costs of mechanisms at one or several lengths, counted and measured: tables and JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nas.costs import attention_cost
from nas.report.table import Column, say, say_table
from nas.report.units import human, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from nas.costs import Cost
    from nas.measurement import Pass, Reading, Readings
    from nas.sources import Source

SHORT: Final[dict[Pass, str]] = {"forward": "fwd", "forward_backward": "fwd+bwd"}
OUT_OF_MEMORY: Final = "out of memory"
MEBIBYTE: Final = 2**20


@dataclass(frozen=True)
class Block:
    """The sizes at which blocks are compared, and how they were measured if they were.

    Attributes:
        lengths: sequence lengths, tokens.
        readings: by a source's text, length and pass.
    """

    dim: int
    heads: int
    lengths: tuple[int, ...]
    device: str = "cpu"
    rounds: int = 0
    readings: Readings | None = None

    def reading(self, source: Source, tokens: int, direction: Pass) -> Reading | None:
        """What a pass took; None if it did not fit into memory."""
        assert self.readings is not None
        return self.readings[source.text, tokens, direction]


@dataclass(frozen=True)
class Costed:
    """A mechanism and its cost at each of a block's lengths."""

    source: Source
    costs: dict[int, Cost]


def costed(sources: Sequence[Source], block: Block) -> list[Costed]:
    """Count each mechanism at each length.

    Raises:
        GenomeError, ViolationError: a mechanism does not exist at this size.
    """
    return [
        Costed(source, {n: _cost(source, n, block) for n in block.lengths}) for source in sources
    ]


def cost_answer(found: Sequence[Costed], block: Block) -> Any:
    """The JSON answer of ``nas cost``: one object for one source at one length, else a list.

    With several lengths each object says which source and length it is of. A pass that did not
    fit into memory is null.
    """
    answers = [_answer(one, n, block) for one in found for n in block.lengths]
    return answers[0] if len(answers) == 1 else answers


def show_costs(console: Console, found: Sequence[Costed], block: Block) -> None:
    """Print what was counted, then what was measured."""
    sizes = f"dim {block.dim}, heads {block.heads}"
    if len(block.lengths) == 1:
        say(console, f"{sizes}, {block.lengths[0]} tokens, batch 1:", "")
        say_table(console, _all_counts(found, block.lengths[0]))
    else:
        say(console, f"Multiply-adds by sequence length ({sizes}, batch 1):", "")
        say_table(console, _macs_by_length(found, block.lengths))
        say(console, "", "At every length:", "")
        say_table(console, _without_length(found))
    if block.readings is not None:
        _show_measured(console, found, block)


def _cost(source: Source, tokens: int, block: Block) -> Cost:
    return attention_cost(source.genome, dim=block.dim, heads=block.heads, tokens=tokens)


def _answer(one: Costed, tokens: int, block: Block) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    if len(block.lengths) > 1:
        answer |= {"source": one.source.text, "tokens": tokens}
    answer |= one.costs[tokens].to_dict()
    if block.readings is not None:
        readings = {d: _figures(block.reading(one.source, tokens, d)) for d in SHORT}
        answer["measured"] = {"device": block.device, "rounds": block.rounds, **readings}
    return answer


def _figures(reading: Reading | None) -> dict[str, Any] | None:
    if reading is None:
        return None
    return {
        "ms": reading.ms,
        "spread": reading.spread,
        "peak_memory_bytes": reading.peak_memory_bytes,
    }


def _all_counts(found: Sequence[Costed], tokens: int) -> list[Column]:
    costs = [one.costs[tokens].to_dict() for one in found]
    named = [
        Column(name.replace("_", " "), tuple(f"{cost[name]:,}" for cost in costs), "right")
        for name in costs[0]
    ]
    return [_names(found), *named]


def _macs_by_length(found: Sequence[Costed], lengths: Sequence[int]) -> list[Column]:
    columns = [
        Column(f"{n:,}", tuple(human(one.costs[n].macs) for one in found), "right") for n in lengths
    ]
    return [_names(found), *columns]


def _without_length(found: Sequence[Costed]) -> list[Column]:
    # A mechanism with weights for each position has other parameters at another length.
    costs = [list(one.costs.values()) for one in found]
    params = tuple(_range([cost.params for cost in own]) for own in costs)
    cache = tuple(_range([cost.kv_cache_bytes_per_token for cost in own]) for own in costs)
    return [
        _names(found),
        Column("params", params, "right"),
        Column("kv cache bytes per token", cache, "right"),
    ]


def _range(values: Sequence[int]) -> str:
    least, most = min(values), max(values)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _names(found: Sequence[Costed]) -> Column:
    return Column("mechanism", tuple(one.source.name for one in found))


def _show_measured(console: Console, found: Sequence[Costed], block: Block) -> None:
    where = "one thread, processor time" if block.device == "cpu" else "elapsed time"
    say(
        console,
        "",
        f"Measured on {block.device} ({where}, float32): the fastest of "
        f"{plural(block.rounds, 'interleaved round')}, and how much slower the median round was. "
        "Memory: the most that a pass holds at once, beyond weights and input.",
    )
    for tokens in block.lengths:
        say(console, "", f"{tokens:,} tokens:", "")
        say_table(console, _measured_columns(found, tokens, block))


def _measured_columns(found: Sequence[Costed], tokens: int, block: Block) -> list[Column]:
    columns = [
        _names(found),
        Column("MACs", tuple(human(one.costs[tokens].macs) for one in found), "right"),
    ]
    for direction, short in SHORT.items():
        readings = [block.reading(one.source, tokens, direction) for one in found]
        columns += [
            Column(f"{short} ms", _cells(readings, lambda r: digits(r.ms)), "right"),
            Column("median", _cells(readings, lambda r: f"+{r.spread:.0%}", "-"), "right", rank=1),
            Column(
                f"{short} MiB",
                _cells(readings, lambda r: digits(r.peak_memory_bytes / MEBIBYTE), "-"),
                "right",
            ),
        ]
    return columns


def _cells(
    readings: Sequence[Reading | None], text: Callable[[Reading], str], missing: str = OUT_OF_MEMORY
) -> tuple[str, ...]:
    return tuple(missing if reading is None else text(reading) for reading in readings)


def digits(value: float) -> str:
    """A quantity in three significant digits, written out: 0.0123, 1.23, 12,300."""
    if value <= 0:
        return "0"
    rounded = float(f"{value:.2e}")
    return f"{rounded:,.{max(0, 2 - math.floor(math.log10(rounded)))}f}"
