"""What is shown of mechanisms: their graphs and costs, and what a run recorded about one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nas.costs import attention_cost
from nas.genome.mechanisms import MECHANISMS
from nas.report.costs import Sizes, mechanisms_table, show_mechanisms
from nas.report.graph import drawing
from nas.report.recorded import recorded_answer, trainings_of, trainings_table
from nas.report.show import examine
from nas.store import open_run
from nas.store.sources import resolve

from .conftest import Printed, read

# A run whose front is that of a longer target task.
WITH_TARGET = Path(__file__).parents[2] / "runs" / "example"
SMALL = Sizes(dim=32, heads=2, tokens=17)


def test_a_member_of_a_run_has_results_and_parents(recorded_run: Path) -> None:
    with open_run(recorded_run) as run:
        child = next(c.proposal for c in run.candidates() if c.is_ok and c.proposal.parents)
    data = examine(resolve(f"{recorded_run}/{child.digest}")).to_dict()
    assert data["parents"] == list(child.parents)
    assert data["operator"] == child.operator
    measured = [one["metrics"]["accuracy"] for one in data["trainings"]]
    assert data["scores"]["accuracy"] == pytest.approx(sum(measured) / len(measured))
    assert data["scores"]["accuracy"] != data["objectives"]["accuracy"]
    assert 0 <= data["p_non_dominated"] <= 1


def test_trainings_under_a_target_task_are_shown_apart() -> None:
    view = read(WITH_TARGET)
    mechanism = view.by_digest["ff011de9df57b15c"]
    lines = trainings_table(view, trainings_of(view, mechanism)).lines()
    assert [line.plain.split()[:3] for line in lines[1:3]] == [
        ["vit-cifar10", "search", "40.8"],
        ["comparison", "search", "55.2"],
    ]
    entries = recorded_answer(view, mechanism)["trainings"]
    assert [(t["part"], t["task"]) for t in entries] == [
        ("search", "vit-cifar10"),
        ("target", "comparison"),
    ]


def test_the_graph_of_mha_as_text() -> None:
    assert [line.plain for line in drawing(MECHANISMS["mha"].genome).lines()] == [
        "q      q = x·W_Q                              tokens[H, d/H]",
        "│ k    k = x·W_K                              tokens[H, d/H]",
        "│ │ v  v = x·W_V                              tokens[H, d/H]",
        "●─┘ │  scores_0 = scaled_dot_product(q, k)    scores[H]",
        "●   │  weights_1 = softmax(scores_0)          weights[H]",
        "●───┘  tokens_2 = weighted_sum(weights_1, v)  tokens[H, d/H]",
        "▼      output = W_O(heads side by side)",
    ]


def test_mechanisms_have_costs_where_they_exist(pipe: Printed) -> None:
    rows = json.loads(json.dumps(mechanisms_table(SMALL).records()))
    items = {item["name"]: item for item in rows}
    assert list(items) == list(MECHANISMS)
    expected = attention_cost(MECHANISMS["mha"].genome, dim=32, heads=2, tokens=17)
    assert items["mha"].items() >= expected.items()
    # Three quarters of two heads is no number of heads.
    assert [name for name, item in items.items() if item["macs"] is None] == ["lsqa"]
    show_mechanisms(pipe.console, SMALL)
    row = next(line for line in pipe.lines if line.startswith("lsqa"))
    assert row.split()[1:4] == ["-", "-", "-"]
    assert items["sqa"]["reading"].startswith(items["sqa"]["about"])
