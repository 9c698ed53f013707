"""`nas show`: one genome from all sides, as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nas.costs import attention_cost
from nas.errors import RunError, ViolationError
from nas.genome import Genome
from nas.mechanisms import MECHANISMS
from nas.report.costs import Sizes
from nas.report.show import examine, show, show_answer
from nas.sources import Source, resolve
from nas.store import candidates, open_run

from .conftest import Printed

KEYS = ("genome", "digest", "formula", "source", "costs", "parents")


def of(genome: Genome, **sizes: int) -> Any:
    return examine(Source("file.json", genome), Sizes(**sizes))


def test_answer_has_the_stable_keys(recorded_run: Path) -> None:
    for text in ("mha", "example/best"):
        shown = examine(resolve(text, recorded_run.parent), Sizes())
        data = json.loads(json.dumps(show_answer(shown), allow_nan=False))
        assert set(KEYS) <= data.keys()
        assert Genome.from_dict(data["genome"]) == shown.source.genome
        assert isinstance(data["parents"], list)


def test_costs_are_those_of_the_sizes_asked_for() -> None:
    genome = MECHANISMS["ssqa"].genome
    expected = attention_cost(genome, dim=32, heads=2, tokens=17)
    data = show_answer(of(genome, dim=32, heads=2, tokens=17))
    assert data["costs"] == expected.to_dict()
    assert "def __init__(self, dim: int = 32, heads: int = 2)" in data["source"]


def test_a_member_brings_its_results_and_lineage(recorded_run: Path) -> None:
    with open_run(recorded_run) as run:
        child = next(c.proposal for c in candidates(run) if c.proposal.parents)
    data = show_answer(examine(resolve(f"{recorded_run}/{child.digest}"), Sizes()))
    assert data["parents"] == list(child.parents)
    assert data["operator"] == child.operator
    assert data["lineage"][0]["id"] == child.digest
    assert data["lineage"][1]["id"] == child.parents[0]
    assert data["evaluations"][0]["metrics"].items() <= data["objectives"].items()


def test_text_shows_everything(recorded_run: Path, pipe: Printed) -> None:
    shown = examine(resolve("example/best", recorded_run.parent), Sizes())
    show(pipe.console, shown)
    assert show_answer(shown)["formula"] in pipe.lines
    for words in (
        f"digest {shown.digest}",
        "output = ",
        "Costs of one block at dim 64, 4 heads, 65 tokens",
        "× mha",
        "In run example",
        "2 epochs x 1024 examples",
        "Lineage, nearest first",
        "class Attention(nn.Module):",
        "nas export example/best",
    ):
        assert words in pipe.text


def test_a_named_mechanism_is_recognised(pipe: Printed) -> None:
    show(pipe.console, of(MECHANISMS["champion_2025"].genome))
    assert "the named mechanism champion_2025" in pipe.lines
    printed = Printed()
    show(printed.console, examine(resolve("champion_2025"), Sizes()))
    assert "The published champion, query-less (Evolving Attention)" in printed.lines


def test_remarks(genome: Any, pipe: Printed) -> None:
    graph = genome(
        ("gelu", "v"),
        ("convolutional_score", "qk"),
        ("softmax", [1]),
        ("weighted_sum", [2, "v"]),
        placement="first",
    )
    show(pipe.console, of(graph))
    assert "In the first layer of a backbone; the others keep standard attention." in pipe.lines
    assert "The file has 4 nodes; what has no effect is left out here." in pipe.lines
    assert "Not causal: convolutional_score sees later tokens." in pipe.lines


def test_a_share_of_less_than_one_head_is_told(pipe: Printed) -> None:
    show(pipe.console, of(MECHANISMS["xsqa"].genome, heads=2))
    assert "1/4 of 2 heads is less than one head: one is used." in pipe.lines
    whole = Printed()
    show(whole.console, of(MECHANISMS["xsqa"].genome, heads=4))
    assert "less than one head" not in whole.text


@pytest.mark.parametrize("width", [40, 80, 120])
def test_all_but_the_source_fits_the_terminal(recorded_run: Path, width: int) -> None:
    terminal = Printed(width)
    show(terminal.console, examine(resolve("example/best", recorded_run.parent), Sizes()))
    before = terminal.lines[: terminal.lines.index("Source")]
    assert max(len(line.rstrip()) for line in before) <= width


def test_a_genome_that_does_not_exist_at_the_sizes_is_still_shown(pipe: Printed) -> None:
    shown = of(MECHANISMS["lsqa"].genome, dim=64, heads=2)
    assert show_answer(shown)["costs"] is None
    show(pipe.console, shown)
    assert "It does not exist at these sizes: " in pipe.text
    assert "output = " in pipe.text


def test_a_genome_without_types_is_a_violation(genome: Any) -> None:
    with pytest.raises(ViolationError, match=r"file\.json: .*nas validate file\.json"):
        of(genome(("softmax", "q")))


def test_a_failed_member_says_why(recorded_run: Path, pipe: Printed) -> None:
    with open_run(recorded_run) as run:
        key = next(key for (key, _), e in run.evaluations().items() if not e.is_ok)
        proposal = next(p for p in run.proposals() if p.key == key)
    show(pipe.console, examine(resolve(f"{recorded_run}/{proposal.digest}"), Sizes()))
    assert "diverged: the loss is not a number" in pipe.text


def test_a_run_that_does_not_exist() -> None:
    with pytest.raises(RunError, match="no such run"):
        resolve("nowhere/best")
