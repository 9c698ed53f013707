"""The results of ``nas table``, which shows tables of recorded trainings (tabular benchmarks).

The command describes all tables, one table or mechanisms of a table, or compares two tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

import numpy as np
from rich.console import Console

from nas.common.errors import GenomeError, TableError
from nas.common.pareto import non_dominated
from nas.common.text import plural
from nas.compiler import formula
from nas.costs import costs_of, size_costs
from nas.genome import Genome
from nas.genome.mechanisms import MECHANISMS
from nas.report.table import TextColumn, named_values, say, say_table
from nas.report.units import amount, digits, header, human, percent
from nas.searching.tabular.ranking import agreements
from nas.searching.tabular.table import Table, load_table, tables

FRACTIONS: Final = ("accuracy",)


def list_tables() -> list[dict[str, Any]]:
    """Return the JSON object of ``nas table`` without a name: the built-in tables."""
    return [_facts(load_table(name)) for name in tables()]


def table_answer(
    table: Table, genomes: Sequence[Genome] = (), *, against: Table | None = None
) -> dict[str, Any]:
    """Return the JSON object of ``nas table`` about a table.

    With ``against`` it contains a comparison of two tables; otherwise with ``genomes`` it contains
    these mechanisms; otherwise it contains the mechanisms that are non-dominated by mean metric and
    multiply-adds.

    Args:
        genomes: mechanisms of the table that are returned with all their trainings.
        against: a table of longer trainings, whose ranking of mechanisms is compared.

    Raises:
        TableError: a genome is not in the table, or the tables have too few common mechanisms.
    """
    metric = table.metrics[0]
    answer = _facts(table) | {"metric": metric}
    if against is not None:
        count, results = agreements(table, against, metric)
        entries = [asdict(result) for result in results]
        return answer | {"against": against.name, "shared": count, "agreements": entries}
    if genomes:
        entries = [_entry(table, table.key_of(genome), is_whole=True) for genome in genomes]
        return answer | {"found": entries}
    means = zip(table.mechanisms, table.scores(metric).mean(axis=1), strict=True)
    rows = [
        (table.costs(key, ["macs"])["macs"], -mean, key) for key, mean in means if np.isfinite(mean)
    ]
    members = sorted(rows[i] for i in non_dominated([(macs, mean) for macs, mean, _ in rows]))
    front = [_entry(table, key) for _, _, key in members]
    noise = {"noise": _noise(table, metric)} if table.repeats > 1 else {}
    return answer | noise | {"front": front}


def show_tables(console: Console, answer: Sequence[dict[str, Any]]) -> None:
    """Print the list of built-in tables."""
    say_table(
        console,
        [
            TextColumn("table", [row["table"] for row in answer], style="cyan"),
            TextColumn("space", [row["space"] for row in answer]),
            TextColumn("task", [row["task"] for row in answer]),
            TextColumn("mechanisms", [str(row["mechanisms"]) for row in answer], "right"),
            TextColumn("trainings of each", [str(row["repeats"]) for row in answer], "right"),
            TextColumn("core hours", [f"{row['core_hours']:.1f}" for row in answer], "right"),
            TextColumn("date", [row["origin"]["date"] for row in answer], rank=1),
        ],
    )
    say(console, "", "next: nas table NAME · nas table NAME SOURCE")


def show_table(console: Console, answer: dict[str, Any]) -> None:
    """Print the JSON object of ``table_answer`` as text."""
    origin = answer["origin"]
    say(console, f"{answer['table']}: {answer['about']}".removesuffix(": "), "")
    trainings = plural(answer["repeats"], "training")
    what = f"{answer['mechanisms']} mechanisms of {answer['space']}, {trainings} of each "
    what += f"under {answer['task']}: {answer['core_hours']:.1f} core hours"
    rows = [
        ("trained", what),
        ("fingerprints", f"space {answer['fingerprints']['space']}, task and data "
                         f"{answer['fingerprints']['task']}"),
        ("hardware", ", ".join(origin["hardware"])),
        ("made", f"{origin['date']} by {origin['command']}"),
    ]  # fmt: skip
    if "noise" in answer:
        noise, metric = answer["noise"], answer["metric"]
        rows.append(
            ("spread", f"{header(metric, _unit(metric))} of one mechanism's trainings deviates by "
             f"{_shown(metric, noise['seeds'])}, mechanisms' means by "
             f"{_shown(metric, noise['mechanisms'])}"),
        )  # fmt: skip
    say_table(console, named_values(rows))
    say(console, "")
    if "agreements" in answer:
        _show_agreements(console, answer)
    else:
        _show_rows(console, answer)


def _facts(table: Table) -> dict[str, Any]:
    evaluations = [e for repeats in table.trainings.values() for e in repeats]
    return {
        "table": table.name,
        "about": table.about,
        "space": table.space.name,
        "task": table.task.name,
        "fingerprints": {
            "space": table.space.fingerprint,
            "policy": table.policy.fingerprint,
            "task": table.task.fingerprint,
        },
        "mechanisms": len(table.mechanisms),
        "repeats": table.repeats,
        "failed": sum(not e.is_ok for e in evaluations),
        "epochs": max((len(e.reports) for e in evaluations), default=0),
        "metrics": table.metrics,
        "core_hours": sum(e.core_seconds for e in evaluations) / 3600,
        "origin": asdict(table.origin),
    }


def _entry(table: Table, key: str, *, is_whole: bool = False) -> dict[str, Any]:
    """Return costs, and mean and standard deviation of each metric, of a table's mechanism.

    Args:
        key: key of the mechanism in the table.
        is_whole: whether the genome and the reports of all trainings are included.
    """
    genome, good = table.mechanisms[key], [e for e in table.trainings[key] if e.is_ok]
    names = []
    for name, mechanism in MECHANISMS.items():
        with suppress(GenomeError, TableError):  # it may not exist at the table's sizes
            names += [name] if table.key_of(mechanism.genome) == key else []
    entry: dict[str, Any] = {
        "key": key,
        "names": names,
        "formula": formula(genome),
        "costs": costs_of(table.setting.resolve(genome), table.setting, size_costs()),
        "core_seconds": _summary([e.core_seconds for e in good]),
    }
    entry |= {name: _summary([e.metrics[name] for e in good]) for name in table.metrics}
    if is_whole:
        fields = ("seed", "status", "reason", "reports", "core_seconds", "hardware")
        trainings = [evaluation.to_dict() for evaluation in table.trainings[key]]
        entry["genome"] = genome.to_dict()
        entry["trainings"] = [{name: row[name] for name in fields} for row in trainings]
    return entry


def _summary(values: Sequence[float]) -> dict[str, Any] | None:
    if not values:
        return None
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {"mean": float(np.mean(values)), "deviation": deviation, "values": list(values)}


def _noise(table: Table, metric: str) -> dict[str, float]:
    """Return two standard deviations of a metric in a table.

    "seeds" is the deviation over the trainings of a mechanism, pooled over all mechanisms.
    "mechanisms" is the deviation of the mechanisms' means.
    """
    scores = table.scores(metric)
    scores = scores[np.isfinite(scores).all(axis=1)]
    within = float(np.sqrt(scores.var(axis=1, ddof=1).mean())) if scores.shape[1] > 1 else 0.0
    return {"seeds": within, "mechanisms": float(scores.mean(axis=1).std())}


def _show_rows(console: Console, answer: dict[str, Any]) -> None:
    metric, selected = answer["metric"], answer.get("found")
    rows = answer["front"] if selected is None else selected
    say(console, "The front by mean scores:" if selected is None else "From its trainings:", "")
    cells = {name: [_cell(name, row[name]) for row in rows] for name in answer["metrics"]}
    times = [row["core_seconds"] for row in rows]
    seconds = [f"{time['mean']:.1f}" if time else "-" for time in times]
    say_table(
        console,
        [
            TextColumn("key", [row["key"][:8] for row in rows], style="cyan"),
            *(TextColumn(header(n, _unit(n)), texts, "right") for n, texts in cells.items()),
            *(
                TextColumn(header(n), [human(row["costs"][n]) for row in rows], "right")
                for n in size_costs()
            ),
            TextColumn("core s", seconds, "right"),
            TextColumn("named", [", ".join(row["names"]) for row in rows]),
            TextColumn("formula", [row["formula"] for row in rows], least=16),
        ],
    )
    say(console, "", "±: deviation of one training.")
    for row in selected or ():
        say(console, "", f"{row['key'][:8]}, {header(metric, _unit(metric))} after each epoch:")
        for training in row["trainings"]:
            values = [_shown(metric, float(r["metrics"][metric])) for r in training["reports"]]
            if training["status"] != "ok":
                values.append(f"{training['status']} ({training['reason']})")
            say(console, f"  seed {training['seed']}: {', '.join(values)}")


def _show_agreements(console: Console, answer: dict[str, Any]) -> None:
    rows, metric = answer["agreements"], answer["metric"]
    say(
        console,
        f"How {answer['shared']} mechanisms rank beside {answer['against']}: Kendall's tau with "
        f"its 95 % bootstrap interval, and the regret of a score's best five in {metric}.",
        "",
    )
    say_table(
        console,
        [
            TextColumn("score of one training", [header(row["score"]) for row in rows]),
            TextColumn("tau of all", [_interval(row["tau"]) for row in rows], "right"),
            TextColumn("tau of the upper half", [_interval(row["upper"]) for row in rows], "right"),
            TextColumn("regret", [_shown(metric, row["regret"]) for row in rows], "right"),
        ],
    )


def _interval(tau: dict[str, float]) -> str:
    return f"{tau['value']:.2f} [{tau['low']:.2f}, {tau['high']:.2f}]"


def _unit(name: str) -> str:
    return "fraction" if name in FRACTIONS else ""


def _shown(name: str, value: float) -> str:
    return percent(value) if name in FRACTIONS else digits(value)


def _cell(name: str, summary: dict[str, Any] | None) -> str:
    if summary is None:
        return "-"
    return amount(summary["mean"], _unit(name), summary["deviation"])
