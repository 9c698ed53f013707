"""Which operators paid: what became of the proposals that each of them made."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from nas.common.differences import mean_and_error

if TYPE_CHECKING:
    from nas.common.objectives import Objective
    from nas.report.page.content import Content, Mechanism


@dataclass(frozen=True)
class Operator:
    """What an operator's mechanisms were worth.

    Attributes:
        trained: mechanisms of it that were to be trained; ``failed`` of them failed.
        joined: of them in the front after some generation; ``stayed``: in the last one.
        gain: mean of how much better in the first objective than the better parent, by estimates,
            with its standard error; positive is better. None where no parent is known.
        core_seconds: of all their trainings.
    """

    name: str
    trained: int
    failed: int
    joined: int
    stayed: int
    gain: tuple[float, float | None] | None
    core_seconds: float


def operators_of(content: Content) -> list[Operator]:
    """The operators, most trained first."""
    groups: dict[str, list[Mechanism]] = {}
    for one in content.trained.values():
        groups.setdefault(one.operator, []).append(one)
    joined = set(chain.from_iterable(generation.front for generation in content.generations))
    stayed = {member.digest for member in content.members}
    seconds: dict[str, float] = {}
    for row in content.trials:
        seconds[row["key"]] = seconds.get(row["key"], 0.0) + row["core_seconds"]
    found = []
    for name, own in groups.items():
        gains = [gain for one in own if (gain := _gain(content, one)) is not None]
        found.append(
            Operator(
                name=name,
                trained=len(own),
                failed=sum(one.state == "failed" for one in own),
                joined=sum(one.digest in joined for one in own),
                stayed=sum(one.digest in stayed for one in own),
                gain=mean_and_error(gains) if gains else None,
                core_seconds=sum(seconds.get(str(one.key), 0.0) for one in own),
            )
        )
    return sorted(found, key=lambda one: (-one.trained, one.name))


def _gain(content: Content, child: Mechanism) -> float | None:
    objective = content.setup.objectives[0]
    own = _value(child, objective)
    parents = (content.by_digest.get(digest) for digest in child.parents)
    values = [v for p in parents if p and (v := _value(p, objective)) is not None]
    return None if own is None or not values else min(values) - own


def _value(one: Mechanism, objective: Objective) -> float | None:
    """The first objective, lower is better."""
    values = one.result.objectives if one.result else None
    return None if values is None else objective.as_cost(values[objective.name])
