"""The named mechanisms as a table and as JSON, with their costs at one size."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from nas.canonical import digest
from nas.compiler import formula
from nas.cost import attention_cost
from nas.errors import GenomeError
from nas.mechanisms import MECHANISMS
from nas.report.table import Column
from nas.report.units import human

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nas.cost import Cost
    from nas.mechanisms import Mechanism
    from nas.report.show import Sizes


@dataclass(frozen=True)
class Priced:
    """A mechanism and what one block of it costs; None where it does not exist at the size."""

    mechanism: Mechanism
    cost: Cost | None


def priced(sizes: Sizes) -> list[Priced]:
    """All named mechanisms with their costs."""
    return [Priced(found, _cost(found, sizes)) for found in MECHANISMS.values()]


def mechanisms_answer(mechanisms: Sequence[Priced], sizes: Sizes) -> dict[str, Any]:
    """The JSON answer of ``nas mechanisms``."""
    return {
        "sizes": asdict(sizes),
        "mechanisms": [
            {
                "name": p.mechanism.name,
                "paper": p.mechanism.paper,
                "about": p.mechanism.about,
                "digest": digest(p.mechanism.genome),
                "formula": formula(p.mechanism.genome),
                "genome": p.mechanism.genome.to_dict(),
                "costs": p.cost.to_dict() if p.cost else None,
            }
            for p in mechanisms
        ],
    }


def mechanisms_columns(mechanisms: Sequence[Priced]) -> list[Column]:
    """The table's columns, one row a mechanism."""
    found = [p.mechanism for p in mechanisms]
    return [
        Column("name", tuple(m.name for m in found), style="cyan"),
        Column("MACs", _numbers(mechanisms, "macs"), "right"),
        Column("params", _numbers(mechanisms, "params"), "right", rank=1),
        Column("KV B/token", _numbers(mechanisms, "kv_cache_bytes_per_token"), "right", rank=1),
        Column("paper", tuple(m.paper for m in found), rank=3),
        Column("formula", tuple(formula(m.genome) for m in found), rank=2, least=30),
    ]


def _cost(found: Mechanism, sizes: Sizes) -> Cost | None:
    try:
        return attention_cost(found.genome, **asdict(sizes))
    except GenomeError:
        return None


def _numbers(mechanisms: Sequence[Priced], name: str) -> tuple[str, ...]:
    return tuple(human(getattr(p.cost, name)) if p.cost else "-" for p in mechanisms)
