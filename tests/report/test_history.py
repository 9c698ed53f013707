"""Results and lineage, where there is much of it and where there is little."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from nas.report.history import MAX_ANCESTORS, history_of, lineage_columns, results
from nas.report.table import table_lines
from nas.store import lineage, open_run


def test_lineage_is_the_stores(recorded_run: Path) -> None:
    with open_run(recorded_run) as run:
        for proposal in run.proposals():
            found = history_of(recorded_run, proposal.digest)
            assert tuple(p for p, _ in found.ancestors) == lineage(run, proposal.digest)


def test_a_long_lineage_is_cut(recorded_run: Path) -> None:
    with open_run(recorded_run) as run:
        digest = run.proposals()[-1].digest
    found = history_of(recorded_run, digest)
    long = dataclasses.replace(found, ancestors=found.ancestors[:1] * (MAX_ANCESTORS + 3))
    assert len(table_lines(lineage_columns(long))) == MAX_ANCESTORS + 1
    assert long.more == ["... and 3 more ancestors."]
    assert found.more == []


def test_repeats_are_counted(make_run: Callable[..., Path], tmp_path: Path) -> None:
    folder = make_run(tmp_path, repeats=3, generations=1)
    with open_run(folder) as run:
        digest = run.proposals()[0].digest
    lines = [line.plain for line in table_lines(results(history_of(folder, digest)))]
    assert lines[0].split() == ["proposed", "generation", "0", "by", "mechanism", "mha"]
    assert any(line.startswith("accuracy %  ") and " ± " in line for line in lines)
    assert any("3 times, 2 epochs x 1024 examples" in line for line in lines)


@pytest.mark.parametrize(
    ("execution", "is_told"),
    [("", False), ("cpu, eager", False), ("cuda graph", True), ("cuda, eager: no graph", True)],
)
def test_how_steps_ran_is_told_where_it_is_no_matter_of_course(
    recorded_run: Path, execution: str, is_told: bool
) -> None:
    with open_run(recorded_run) as run:
        found = history_of(recorded_run, run.proposals()[0].digest)
    first = dataclasses.replace(found.evaluations[0], execution=execution)
    lines = table_lines(results(dataclasses.replace(found, evaluations=(first,))))
    told = [line.plain for line in lines if line.plain.startswith("steps")]
    assert len(told) == is_told
    assert all(line.endswith(execution) for line in told)
