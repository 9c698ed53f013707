"""The front as a person sees it: a table with what to do next; and as the JSON of ``nas front``.

The JSON is front.json of the run folder and, beside it, how the run stands at the moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from nas.report.facts import headline, tally
from nas.report.table import Column, say, say_table
from nas.report.units import HEADERS, measured, plural
from nas.search.front_file import front_answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from nas.report.facts import Facts
    from nas.store import Candidate, Run

# Shown beside the objectives where they were measured.
EXTRAS: Final = ("params", "kv_cache_bytes_per_token")
MAX_NAMES: Final = 2
MIN_FORMULA: Final = 20


def answer(run: Run, facts: Facts) -> dict[str, Any]:
    """The JSON answer of ``nas front``, from a run and its facts of the same moment.

    The keys of front.json; and status, times in seconds, and the names of mechanisms that a member
    is or dominates, by its id.
    """
    return front_answer(run) | {
        "status": facts.summary.status,
        "wall_seconds": facts.wall_seconds,
        "core_seconds": facts.core_seconds,
        "named": {m.digest: list(facts.names_of(m)) for m in facts.members},
        "dominates": {m.digest: list(facts.beaten_by(m)) for m in facts.members},
    }


def show_front(console: Console, facts: Facts, label: str) -> None:
    """Print the front of a run that has one.

    Args:
        label: how the person names the run on the command line.
    """
    say(console, headline(facts), "")
    say_table(console, front_columns(facts))
    say(console, "", *_legend(facts))
    words, values = zip(*tally(facts), strict=True)
    say_table(console, [Column("", words, style="dim"), Column("", values, least=20)])
    say(console, "")
    say_table(console, next_commands(facts, label))


def no_front(facts: Facts, label: str) -> str:
    """Why there is no front, in a sentence or two."""
    words = dict(tally(facts))
    more = {
        "running": "It is running: look again later.",
        "stopped": f"`nas resume {label}` goes on with it.",
        "finished": "See why in the record: table evaluations of run.sqlite, column error.",
    }[facts.summary.status]
    return (
        f"run {facts.summary.name!r} has no front: no training has ended well yet. "
        f"Proposed: {words['proposed']}; failed: {words['failed']}. {more}"
    )


def front_columns(facts: Facts) -> list[Column]:
    """The table's columns: one row a member."""
    members = facts.members
    objectives = [objective.name for objective in facts.setup.objectives]
    columns = [Column("id", tuple(map(facts.short, members)), style="cyan")]
    for name in objectives:
        columns.append(_column(members, name, rank=0))
        if name == "macs" and facts.standard is not None:
            columns.append(Column("× mha", _relative(facts), "right", rank=2))
    columns += [
        _column(members, name, rank=3)
        for name in EXTRAS
        if name not in objectives and all(name in m.objectives for m in members)
    ]
    named = tuple(_mark(facts, member) for member in members)
    formulas = tuple(member.proposal.formula for member in members)
    return [
        *columns,
        Column("named", named, style="green", rank=1),
        Column("formula", formulas, rank=1, least=MIN_FORMULA),
    ]


def next_commands(facts: Facts, label: str) -> list[Column]:
    """What to type next, and what it does."""
    commands = [
        (f"nas show {label}/best", "formula, graph, costs, lineage and source"),
        (f"nas export {label}/best -o champion.py", "one readable file that needs torch alone"),
        (f"nas front {label} --plot front.png", "this front as a picture"),
    ]
    if facts.summary.status == "stopped":
        commands.append((f"nas resume {label}", "go on with the search"))
    typed, about = zip(*commands, strict=True)
    return [Column("next", typed, style="bold"), Column("", about, least=28, rank=1)]


def _column(members: Sequence[Candidate], name: str, rank: int) -> Column:
    cells = tuple(
        measured(name, member.objectives[name], member.standard_errors.get(name))
        for member in members
    )
    return Column(HEADERS.get(name, name), cells, "right", rank=rank)


def _relative(facts: Facts) -> tuple[str, ...]:
    assert facts.standard is not None
    whole = facts.standard.objectives["macs"]
    return tuple(f"{m.objectives['macs'] / whole:.2f}" if whole else "" for m in facts.members)


def _mark(facts: Facts, member: Candidate) -> str:
    """A member's own names; else the named mechanisms that it dominates."""
    own = facts.names_of(member)
    if own:
        return " = ".join(own)
    beaten = facts.beaten_by(member)
    more = f" +{len(beaten) - MAX_NAMES}" if len(beaten) > MAX_NAMES else ""
    return f"> {', '.join(beaten[:MAX_NAMES])}{more}" if beaten else ""


def _legend(facts: Facts) -> list[str]:
    lines = []
    if any(member.standard_errors for member in facts.members):
        repeats = plural(facts.setup.repeats, "training")
        lines.append(f"±: standard error of the mean over {repeats} with different seeds.")
    if any(_mark(facts, member).startswith(">") for member in facts.members):
        lines.append("> name: dominates that named mechanism, as measured in this run.")
    return lines
