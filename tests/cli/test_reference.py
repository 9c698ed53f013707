"""A task's reference is what its searches, comparisons and pages compare with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nas.costs import costs_of
from nas.evaluation.study import cost_context
from nas.genome.mechanisms import mechanism
from nas.store import open_run
from nas.tasks import load_task
from tests.cli.conftest import LOCAL

TEXT = """
name: tiny
kind: bytes
reference: "rope:kv_heads=1/2"
positions: none
width: 16
depth: 1
heads: 2
length: 16
epochs: 1
train_examples: 32
validation_examples: 16
curve_examples: 8
batch_size: 8
precision: float32
"""
REFERENCE = "rope:kv_heads=1/2"
SMALL = ("--task", "tiny.yaml", *LOCAL)


@pytest.fixture(autouse=True)
def _at_text(at_folder: Path) -> None:
    Path("tiny.yaml").write_text(TEXT)


def test_every_comparison_is_with_the_tasks_reference(nas: Any) -> None:
    space = ("--space", "attention_causal", "--objectives", "quality,macs", *SMALL)
    limits = ("--region", "quality=0.01,macs=1.5", "--gens", 1, "--pop", 3, "--run", "a")
    searched = nas("search", *space, *limits)
    assert searched.status == 0, searched.err
    task = load_task("tiny.yaml")
    context = cost_context(task)
    rope, mha = (
        costs_of(context.resolve(mechanism(name).genome), context, ["macs"])["macs"]
        for name in (REFERENCE, "mha")
    )
    with open_run(Path("runs/a")) as run:
        objectives = {objective.name: objective for objective in run.setup.objectives}
        trained = {training.name for training in run.trainings("reference")}
        proposed = [proposal.name for proposal in run.proposals()]
    assert objectives["macs"].limit == 1.5 * rope != 1.5 * mha
    assert objectives["macs"].reference == 2 * rope
    assert trained == {REFERENCE, "uniform"}
    assert proposed == [REFERENCE, "rope", "qk_norm"]

    confirmed = nas("confirm", "a", "--seeds", 2, "--members", 1, *LOCAL, "--json")
    assert json.loads(confirmed.out)["against"] == REFERENCE
    found = json.loads(nas("front", "a", "--json").out)["members"]
    assert all(member[f"macs_times_{REFERENCE}"] == member["macs"] / rope for member in found)
    assert f"× {REFERENCE}" in nas("front", "a").out
    assert f"× {REFERENCE}" in nas("show", "a/best").out
    assert nas("report", "a", "-o", "page.html").status == 0
    page = Path("page.html").read_text()
    assert f"Costs beside {REFERENCE}" in page
    assert "Costs beside mha" not in page


def test_judge_and_explain_compare_with_the_tasks_reference_by_default(nas: Any) -> None:
    judged = nas("judge", "uniform", "--pairs", 1, *SMALL, "--json")
    assert judged.status == 0, judged.err
    assert json.loads(judged.out)["against"] == REFERENCE
    other = nas("judge", "uniform", "--against", "mha", "--pairs", 1, *SMALL, "--json")
    assert json.loads(other.out)["against"] == "mha"
    explained = nas("explain", "uniform", "--seeds", 2, *SMALL, "--json")
    assert explained.status == 0, explained.err
    controls = json.loads(explained.out)["controls"]
    assert controls[0]["words"] == REFERENCE
    assert all(row["words"].startswith(REFERENCE) for row in controls)
    own = nas("explain", "uniform", "--against", "forgetting", "--seeds", 2, *SMALL, "--json")
    assert json.loads(own.out)["controls"][0]["words"] == "forgetting"
