"""The front as a person sees it: a table with what to do next; and as the JSON of ``nas front``.

The JSON is front.json of the run folder and, beside it, how the run stands at the moment.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nas.common.objectives import REGRET
from nas.common.registry import NOTEBOOK
from nas.report.facts import gather, headline, p_cell, tally
from nas.report.table import Column, named_values, say, say_table
from nas.report.text import plural
from nas.report.units import amount, header
from nas.searching.front_file import front_answer
from nas.store import RUNS, find_run, open_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from nas.report.facts import RunFacts
    from nas.store import Candidate, Run

# Costs shown beside the objectives where they are known.
EXTRAS: Final = ("params", "kv_cache_bytes_per_token")
MAX_NAMES: Final = 2
SURE: Final = 0.8  # probability from which on a named mechanism is said to be beaten
MIN_FORMULA: Final = 20


class Front(dict[str, Any]):
    """The answer of ``nas front --json``, which a notebook shows as a table.

    Attributes:
        facts: what the table is made of.
    """

    def __init__(self, given: dict[str, Any], facts: RunFacts) -> None:
        super().__init__(given)
        self.facts = facts

    def _repr_html_(self) -> str:
        return NOTEBOOK.get("front")(self)


def front(run: str = "latest", *, runs: str | Path = RUNS) -> Front:
    """A run's front: the answer of ``nas front --json``; in a notebook, its table.

    Raises:
        RunError: there is no such run, or it cannot be read.
    """
    with open_run(find_run(run, Path(runs))) as opened, opened.snapshot():
        facts = gather(opened)
        return Front(answer(opened, facts), facts)


def answer(run: Run, facts: RunFacts) -> dict[str, Any]:
    """The JSON answer of ``nas front``, from a run and its facts of the same moment.

    The keys of front.json; and status, times in seconds, what trained, and the names of mechanisms
    that a member is or dominates, these also with how likely it does, by its id.
    """
    beaten = {m.digest: facts.beaten_by(m) for m in facts.members}
    return front_answer(run, facts.members) | {
        "status": facts.summary.status,
        "wall_seconds": facts.wall_seconds,
        "core_seconds": facts.core_seconds,
        "hardware": list(facts.hardware),
        "named": {m.digest: list(facts.names_of(m)) for m in facts.members},
        "dominates": {digest: list(names) for digest, names in beaten.items()},
        "p_dominates": beaten,
        "confirmed": {m.digest: facts.confirmed(m) for m in facts.members},
    }


def show_front(console: Console, facts: RunFacts, label: str) -> None:
    """Print the front of a run that has one.

    Args:
        label: how the person names the run on the command line.
    """
    say(console, headline(facts), "")
    say_table(console, front_columns(facts))
    say(console, "", *legend(facts))
    say_table(console, named_values(tally(facts)))
    say(console, "")
    say_table(console, next_commands(facts, label))


def no_front(facts: RunFacts, label: str) -> str:
    """Why there is no front, in a sentence or two."""
    words = dict(tally(facts))
    more = {
        "running": "It is running: look again later.",
        "stopped": f"`nas resume {shlex.quote(label)}` goes on with it.",
        "finished": "See why in the record: table trials of run.sqlite, column error.",
    }[facts.summary.status]
    return (
        f"run {facts.summary.name!r} has no front: no training has ended well yet. "
        f"Proposed: {words['proposed']}; failed: {words['failed']}; stopped at a gate: "
        f"{facts.summary.counts.stopped}. {more}"
    )


def front_columns(facts: RunFacts) -> list[Column]:
    """The table's columns: one row a member."""
    members, objectives = facts.members, facts.setup.objectives
    p = [p_cell(m) for m in members]
    columns = [Column("id", [facts.short(m) for m in members], style="cyan")]
    for objective in objectives:
        columns.append(_column(members, objective.name, objective.unit, rank=0))
        if any(p) and all(objective.name in m.scores for m in members):
            scores = [amount(m.scores[objective.name], objective.unit) for m in members]
            columns.append(Column("score", scores, "right", rank=2))
        if not objective.is_metric and facts.standard is not None:
            whole = facts.standard.objectives[objective.name]
            own = [member.objectives[objective.name] for member in members]
            shares = [f"{value / whole:.2f}" if whole else "" for value in own]
            columns.append(Column("× mha", shares, "right", rank=2))
    first = next((o for o in objectives if o.is_metric), objectives[0])
    for title in facts.fresh:
        means = [facts.confirmed(m).get(title) for m in members]
        cells = [amount(v["mean"], first.unit, v["error"]) if v else "" for v in means]
        columns.append(Column(title, cells, "right", rank=1))
    limits = [_limit(m) for m in members]
    columns.append(Column("limited by", limits if any(limits) else [], rank=1))
    shown = {objective.name for objective in objectives}
    columns += [
        _column(members, name, "", rank=3)
        for name in EXTRAS
        if name not in shown and all(name in m.objectives for m in members)
    ]
    return [
        *columns,
        Column("seeds", [str(m.trainings) for m in members] if any(p) else [], "right", rank=4),
        Column("P", p, "right", rank=4),
        Column("named", [_mark(facts, m) for m in members], style="green", rank=1),
        Column("formula", [m.proposal.formula for m in members], rank=1, least=MIN_FORMULA),
    ]


def next_commands(facts: RunFacts, label: str) -> list[Column]:
    """What to type next, and what it does."""
    run, best = shlex.quote(label), shlex.quote(f"{label}/best")
    commands = [
        (f"nas show {best}", "formula, graph, costs, lineage and source"),
        (f"nas export {best} -o champion.py", "one readable file that needs torch alone"),
        (f"nas front {run} --plot front.png", "this front as a picture"),
    ]
    if facts.summary.status == "stopped":
        commands.append((f"nas resume {run}", "go on with the search"))
    typed, about = zip(*commands, strict=True)
    return [Column("next", typed, style="bold"), Column("", about, least=28, rank=1)]


def _column(members: Sequence[Candidate], name: str, unit: str, rank: int) -> Column:
    cells = [amount(m.objectives[name], unit, m.errors.get(name)) for m in members]
    return Column(header(name, unit), cells, "right", rank=rank)


def _limit(member: Candidate) -> str:
    """Of several tasks, the one with the largest regret."""
    regrets = {name: value for name, value in member.scores.items() if name.endswith(REGRET)}
    return max(regrets, key=regrets.__getitem__).removesuffix(REGRET) if len(regrets) > 1 else ""


def _mark(facts: RunFacts, member: Candidate) -> str:
    """A member's own names; else the named mechanisms that it most likely dominates."""
    own = facts.names_of(member)
    if own:
        return " = ".join(own)
    beaten = [name for name, p in facts.beaten_by(member).items() if p >= SURE]
    more = f" +{len(beaten) - MAX_NAMES}" if len(beaten) > MAX_NAMES else ""
    return f"> {', '.join(beaten[:MAX_NAMES])}{more}" if beaten else ""


def legend(facts: RunFacts) -> list[str]:
    """What columns of the table mean."""
    lines = []
    if any(map(p_cell, facts.members)):
        lines += [
            "±: standard error of an estimate from all trainings of the run; score: the mean of "
            "the member's own, one a seed.",
            "P: how likely nothing that was trained dominates it.",
        ]
        if max(candidate.trainings for candidate in facts.candidates) == 1:
            lines.append("Nothing was trained twice: the noise is a guess, and so are ± and P.")
    elif facts.setup.repeats > 1:
        repeats = plural(facts.setup.repeats, "training")
        lines.append(f"±: standard error of the mean over {repeats} with different seeds.")
    elif any(objective.is_metric for objective in facts.setup.objectives):
        lines.append("One training each, nothing estimated yet: the best of many is lucky.")
    if facts.fresh:
        lines.append(
            f"{', '.join(facts.fresh)}: means of trainings with fresh seeds, by `nas confirm`."
        )
    if any(_mark(facts, member).startswith(">") for member in facts.members):
        lines.append(
            f"> name: dominates that named mechanism with a probability of at least {SURE}."
        )
    if len(facts.hardware) > 1:
        lines.append(
            f"Trained on different hardware, which rounds differently: {', '.join(facts.hardware)}."
        )
    return lines
