"""The data of the page's panel of one mechanism."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Final

from nas.common.config import parse_yaml
from nas.common.errors import NasError
from nas.compiler import make_plan, plain_source
from nas.report.graph import graph_svg
from nas.report.page.rendering import address
from nas.report.recorded import PartTraining, costs, facts, trainings_of, trainings_table
from nas.report.run_view import RunView
from nas.report.units import amount, header, minus, points
from nas.store import Candidate
from nas.tasks import parse_task

# A graph and a source take milliseconds and kilobytes. Other mechanisms show commands for them.
MOST_WHOLE: Final = 48
MOST_STEPS: Final = 30


def mechanisms(view: RunView) -> Iterator[dict[str, Any]]:
    """Yield what the page shows of each mechanism of a run, in order of proposal.

    Graph, ancestors and source are given for the best, knee and cheapest mechanisms of the front,
    then for published and confirmed mechanisms, then for the rest of the front.
    """
    keys = sorted({*(t.key for t in view.confirmations), *view.names} & view.trained.keys())
    whole = [*view.titles, *(view.trained[key].digest for key in keys)]
    whole = [*dict.fromkeys([*whole, *(member.digest for member in view.members)])][:MOST_WHOLE]
    members = {member.digest for member in view.members}
    for mechanism in view.mechanisms:
        titles = list(view.titles.get(mechanism.digest, ()))
        titles += ["in the front"] if mechanism.digest in members else []
        source = shlex.quote(f"{view.label}/{view.short(mechanism)}")
        is_whole = mechanism.digest in whole
        is_trained = view.trained.get(mechanism.key) is mechanism
        trainings = trainings_of(view, mechanism) if is_trained else []
        yield {
            "address": address(view.name, mechanism.digest),
            "name": view.called(mechanism),
            "about": " · ".join(titles),
            "reference": view.reference,
            "proposal": mechanism.proposal,
            "facts": [*facts(view, mechanism)],
            "parents": [
                (view.called(p), address(view.name, p.digest)) for p in _parents(view, mechanism)
            ],
            "costs": [*costs(view, mechanism)],
            "commands": (
                f"nas show {source}",
                f"nas export {source} -o champion.py",
                f"nas evaluate {view.reference} {source} --seeds 5",
            ),
            "whole": _whole(view, mechanism) if is_whole else None,
            "curves": _curves(view, mechanism, trainings) if is_whole else [],
            "trainings": trainings_table(view, trainings).shown,
        }


def _parents(view: RunView, mechanism: Candidate) -> list[Candidate]:
    parents = mechanism.proposal.parents
    return [view.by_digest[parent] for parent in parents if parent in view.by_digest]


def _whole(view: RunView, mechanism: Candidate) -> dict[str, Any]:
    """Return graph, source and first parents, the nearest first, or why there is no source."""
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
            view.called(step),
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


def _curves(
    view: RunView, mechanism: Candidate, own: Sequence[PartTraining]
) -> list[dict[str, Any]]:
    """Return a picture of learning curves for each task: lines by epoch in pixels, and ticks."""
    metric, reference = view.metric, view.reference_candidate
    if metric is None:
        return []
    cells = {part: of_part.get(mechanism.key) for part, of_part in view.means.items()}
    trainings = [
        ("own" if part == "search" else "fresh", training)
        for part, training in own
        if training.learning_rate in (None, getattr(cells.get(part), "learning_rate", None))
    ]
    if reference is not None and reference is not mechanism:
        trainings = [*(("base", training) for training in reference.searched), *trainings]
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
