"""The data of the page's panel of one mechanism."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from typing import Any, Final

from nas.common.config import parse_yaml
from nas.common.errors import NasError
from nas.common.text import last_line, plural
from nas.compiler import make_plan, plain_source
from nas.evaluation.trial import Training
from nas.report.graph import graph_svg
from nas.report.page.rendering import address, minus
from nas.report.run_view import RunView, outside_text
from nas.report.units import amount, duration, header, human, points
from nas.store import Candidate
from nas.tasks import parse_task

# A graph and a source take milliseconds and kilobytes. Other mechanisms show commands for them.
MOST_WHOLE: Final = 48
MOST_STEPS: Final = 30
# Headers of the table of trainings; the third is the run's metric.
TRAINING_HEADS: Final = (
    *("task", "part", "metric", "seed", "status"),
    *("core time", "memory", "hardware", "error"),
)


def mechanisms(view: RunView) -> Iterator[dict[str, Any]]:
    """Yield what the page shows of each mechanism of a run, in order of proposal.

    Graph, ancestors and source are given for the best, knee and cheapest mechanisms of the front,
    then for published and confirmed mechanisms, then for the rest of the front.
    """
    keys = sorted({*(t.key for t in view.confirmations), *view.names} & view.trained.keys())
    whole = [*view.titles, *(view.trained[key].digest for key in keys)]
    whole = [*dict.fromkeys([*whole, *(member.digest for member in view.members)])][:MOST_WHOLE]
    costs = dict.fromkeys(o.name for o in view.setup.objectives if not o.is_metric)
    costs |= dict.fromkeys(name for mechanism in view.candidates for name in mechanism.costs)
    confirmations: dict[str, list[tuple[str, Training]]] = {}
    for title, training in view.confirmations_by_part:
        confirmations.setdefault(training.key, []).append((title, training))
    members = {member.digest for member in view.members}
    for mechanism in view.mechanisms:
        titles = list(view.titles.get(mechanism.digest, ()))
        titles += ["in the front"] if mechanism.digest in members else []
        source = shlex.quote(f"{view.label}/{view.short(mechanism)}")
        is_whole = mechanism.digest in whole
        is_trained = view.trained.get(mechanism.key) is mechanism
        confirmed = confirmations.get(mechanism.key, []) if is_trained else []
        yield {
            "address": address(view.name, mechanism.digest),
            "name": _name(view, mechanism),
            "about": " · ".join(titles),
            "proposal": mechanism.proposal,
            "facts": [fact for fact in _facts(view, mechanism) if fact[1]],
            "parents": [
                (_name(view, p), address(view.name, p.digest)) for p in _parents(view, mechanism)
            ],
            "costs": [*_costs(view, mechanism, costs)],
            "commands": (
                f"nas show {source}",
                f"nas export {source} -o champion.py",
                f"nas evaluate {source} mha --seeds 5",
            ),
            "whole": _whole(view, mechanism) if is_whole else None,
            "curves": _curves(view, mechanism, confirmed) if is_whole else [],
            "trainings": _trainings(view, mechanism, confirmed),
        }


def _name(view: RunView, mechanism: Candidate) -> str:
    return view.name_of(mechanism) or view.short(mechanism)


def _parents(view: RunView, mechanism: Candidate) -> list[Candidate]:
    parents = mechanism.proposal.parents
    return [view.by_digest[parent] for parent in parents if parent in view.by_digest]


def _searched(mechanism: Candidate) -> tuple[Training, ...]:
    return (*mechanism.trainings, *(mechanism.target or ()))


def _facts(view: RunView, mechanism: Candidate) -> Iterator[tuple[str, str, str]]:
    """Yield name, text and kind of each result of a mechanism.

    The kind is the shape of its mark, or "more" for what the tooltip omits.
    """
    seeds = plural(len(mechanism.scored), "seed")
    for metric in (o for o in view.setup.objectives if o.is_metric):
        title, name = header(metric.name, metric.unit), metric.name
        if mechanism.is_estimated and name in mechanism.objectives:
            value, error = mechanism.objectives[name], mechanism.errors.get(name)
            yield f"{title}, estimate", amount(value, metric.unit, error), "disc"
        if name in mechanism.scores:
            score = amount(mechanism.scores[name], metric.unit)
            yield f"{title}, score of {seeds}", score, "ring"
        for (part, key), cell in view.confirmation(metric).cells.items():
            if key != mechanism.key or cell.mean is None:
                continue
            mean = amount(cell.mean, metric.unit, cell.error)
            yield f"{title}, {part} ({plural(cell.seeds, 'seed')})", mean, "square"
            if lead := cell.difference:
                gain = minus(points(lead.mean, lead.error, metric.unit))
                yield f"over mha, {part}: {lead.verdict}", gain, f"square {lead.verdict}"
    if mechanism.is_estimated and mechanism.p is not None:
        yield "p(front)", f"{mechanism.p:.2f}", ""
    if mechanism.objectives:
        yield "limits", outside_text(view.setup.objectives, mechanism.objectives), ""
    yield "training", "" if mechanism.is_ok else mechanism.status, ""
    proposal = mechanism.proposal
    generation = 1 + proposal.number // view.setup.config.population
    operator = proposal.operator.replace("_", " ")
    yield "proposed", f"generation {generation} by {operator}", "more"
    yield "digest", mechanism.digest, "more"


def _costs(
    view: RunView, mechanism: Candidate, names: dict[str, None]
) -> Iterator[tuple[str, str, float | None]]:
    """Yield title, text and multiple of standard attention's cost for each cost."""
    shares = view.shares(mechanism)
    for name in names:
        if name in mechanism.costs:
            yield header(name), amount(mechanism.costs[name]), shares.get(name)


def _whole(view: RunView, mechanism: Candidate) -> dict[str, Any]:
    """Return graph, source and lineage of a mechanism, or the reason why it has no source.

    The lineage is the mechanism and a chain of first parents, nearest first, each with the first
    objective and its change from the next; it is empty without a parent.
    """
    genome, task = mechanism.proposal.genome, view.setup.front_task
    try:
        model = parse_task(parse_yaml(task.text, task.name), task.name).main
        sizes, bias = model.sizes, model.qkv_bias
        source = plain_source(make_plan(genome).genome, sizes.dim, sizes.heads, qkv_bias=bias)
        graph = graph_svg(genome)
    except NasError as error:  # recorded with primitives or a task of another version
        return {"error": str(error), "genome": genome.to_json(), "lineage": []}
    chain: list[Candidate] = []
    step: Candidate | None = mechanism
    while step is not None and step not in chain and len(chain) < MOST_STEPS:
        chain.append(step)
        step = next(iter(_parents(view, step)), None)
    first = view.setup.objectives[0]
    values = [step.objectives.get(first.name) for step in chain]
    lineage = [
        (
            _name(view, step),
            address(view.name, step.digest),
            step.proposal.operator.replace("_", " "),
            "" if value is None else amount(value, first.unit),
            ""
            if value is None or before is None
            else minus(points(value - before, None, first.unit)),
        )
        for step, value, before in zip(chain, values, [*values[1:], None], strict=True)
    ]
    # The page's policy forbids style attributes; page.css has this rule.
    graph = graph.replace(' style="max-width: 100%; height: auto"', "")
    title = header(first.name, first.unit)
    return {
        "graph": graph, "source": source, "genome": genome.to_json(), "title": title,
        "lineage": lineage if len(lineage) > 1 else [],
    }  # fmt: skip


def _trainings(
    view: RunView, mechanism: Candidate, confirmations: list[tuple[str, Training]]
) -> dict[str, Any]:
    """Return headers and rows of the table of a mechanism's trainings, each with its task."""
    metric = view.metric
    searched = [("search", training) for training in _searched(mechanism)]
    rows = []
    for part, training in [*searched, *confirmations]:
        evaluation = training.evaluation
        value = evaluation.metrics.get(metric.name) if metric else None
        reason = (evaluation.reason or "").replace("_", " ")
        rows.append(
            (
                training.task_name,
                part,
                "" if metric is None or value is None else amount(value, metric.unit),
                str(evaluation.seed),
                evaluation.status,
                duration(evaluation.core_seconds),
                f"{human(evaluation.peak_memory_bytes)}B",
                evaluation.hardware,
                ": ".join(filter(None, (reason, last_line(evaluation.error)))),
            )
        )
    used = [any(row[i] for row in rows) for i in range(len(TRAINING_HEADS))]
    title = header(metric.name, metric.unit) if metric else ""
    heads = [title if head == "metric" else head for head in TRAINING_HEADS]
    heads = [head for head, is_used in zip(heads, used, strict=True) if is_used]
    return {
        "heads": heads,
        "rows": [[c for c, u in zip(row, used, strict=True) if u] for row in rows],
    }


def _curves(
    view: RunView, mechanism: Candidate, confirmations: list[tuple[str, Training]]
) -> list[dict[str, Any]]:
    """Return a picture of learning curves for each task: lines by epoch in pixels, and ticks."""
    metric, standard = view.metric, view.standard
    if metric is None:
        return []
    trainings = [("own", training) for training in _searched(mechanism)]
    trainings += [("fresh", training) for _, training in confirmations]
    if standard is not None and standard is not mechanism:
        trainings = [*(("base", training) for training in _searched(standard)), *trainings]
    by_task: dict[str, list[tuple[str, list[float]]]] = {}
    for kind, training in trainings:
        reports = training.evaluation.reports
        values = [r.metrics[metric.name] for r in reports if metric.name in r.metrics]
        if len(values) > 1 and all(map(math.isfinite, values)):
            by_task.setdefault(training.task_name, []).append((kind, values))
    pictures = []
    for task, lines in by_task.items():
        flat = [value for _, values in lines for value in values]
        low, high, epochs = min(flat), max(flat), max(len(values) for _, values in lines)
        height, width = 132 / ((high - low) or 1.0), 352 / (epochs - 1)

        def y(value: float, low: float = low, height: float = height) -> float:
            return 142 - height * (value - low)

        drawn = []
        for kind, values in lines:
            places = (f"{40 + width * i:.0f},{y(value):.1f}" for i, value in enumerate(values))
            drawn.append((kind, " ".join(places)))
        ticks = [(y(v), amount(v, metric.unit)) for v in (low, (low + high) / 2, high)]
        title = f"{header(metric.name, metric.unit)} under {task}"
        pictures.append({"title": title, "lines": drawn, "ticks": ticks, "epochs": epochs})
    return pictures
