"""Results and lineage, where there is much of it and where there is little."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from nas.evaluation.trial import Incident
from nas.report.history import MAX_ANCESTORS, History, history_of, lineage_columns, results
from nas.report.table import table_lines
from nas.store import lineage, open_run
from tests.report.page.conftest import limit_macs


def of(folder: Path, number: int) -> History:
    with open_run(folder) as run:
        return history_of(folder, run.proposals()[number].digest)


def lines(history: History) -> list[str]:
    return [line.plain for line in table_lines(results(history))]


def test_lineage_is_that_of_the_store_and_a_long_one_is_cut(recorded_run: Path) -> None:
    with open_run(recorded_run) as run:
        for proposal in run.proposals():
            found = history_of(recorded_run, proposal.digest)
            assert tuple(p for p, _ in found.ancestors) == lineage(run, proposal.digest)
    long = dataclasses.replace(found, ancestors=found.ancestors[:1] * (MAX_ANCESTORS + 3))
    assert len(table_lines(lineage_columns(long))) == MAX_ANCESTORS + 1
    assert (found.more, long.more) == ([], ["... and 3 more ancestors."])


def test_repeats_are_counted(make_run: Callable[..., Path], tmp_path: Path) -> None:
    told = lines(of(make_run(tmp_path, repeats=3, generations=1), 0))
    assert told[0].split() == ["proposed", "generation", "1", "by", "mechanism", "mha"]
    assert any(line.startswith("accuracy %, estimate  ") and " ± " in line for line in told)
    assert any("3 times, 2 epochs x 1024 examples" in line for line in told)


def test_generations_count_from_one_for_people_and_from_zero_in_json(recorded_run: Path) -> None:
    with open_run(recorded_run) as run:
        size, last = run.setup.config.population, len(run.proposals()) - 1
        number = run.proposals()[last].number
    found = of(recorded_run, last)
    assert found.to_dict()["generation"] == number // size == 2
    assert lines(found)[0].split()[1:3] == ["generation", "3"]
    shown = table_lines(lineage_columns(found))
    assert shown[1].plain.split()[1] == "3"


def test_results_show_estimate_scores_by_seed_and_p_front(recorded_run: Path) -> None:
    with open_run(recorded_run) as run:
        again = next(i for i, p in enumerate(run.proposals()) if p.is_repeat)
    found = of(recorded_run, again)
    _, candidate = found.ancestors[0]
    assert candidate is not None
    told = dict(line.split("  ", 1) for line in lines(found) if "  " in line)
    first, second = (100 * e.metrics["accuracy"] for e in found.evaluations)
    assert told["accuracy % by seed"].strip() == f"{first:.1f}, {second:.1f}"
    assert (
        told["accuracy %, estimate"]
        .strip()
        .startswith(f"{100 * candidate.objectives['accuracy']:.1f} ± ")
    )
    assert told["p(front)"].strip().startswith(f"{candidate.p:.2f}: ")


def test_mechanism_outside_the_limits_is_shown_with_the_limit(
    recorded_run: Path, tmp_path: Path
) -> None:
    with open_run(recorded_run) as run:
        proposals = run.proposals()
        number = next(i for i, p in enumerate(proposals) if p.is_new and p.costs["macs"] > 0)
    limit = proposals[number].costs["macs"]
    for name, shown, inside in (("narrow", limit - 1, False), ("wide", limit, True)):
        told = "\n".join(lines(of(limit_macs(recorded_run, tmp_path / name, shown), number)))
        assert ("outside: MACs at most" in told) != inside
        assert "within the limits and that no trained mechanism within them" in told


def test_execution_is_shown_unless_it_is_eager(recorded_run: Path) -> None:
    found = of(recorded_run, 0)
    for execution in ("", "cpu, eager", "cuda graph", "cuda, eager: no graph"):
        first = dataclasses.replace(found.evaluations[0], execution=execution)
        told = lines(dataclasses.replace(found, evaluations=(first,)))
        steps = [line.removeprefix("steps").strip() for line in told if line.startswith("steps")]
        assert steps == ([execution] if execution.startswith("cuda") else [])


def test_restarts_are_counted_by_cause(recorded_run: Path) -> None:
    found = of(recorded_run, 0)
    assert found.incidents == ()
    assert not any(line.startswith("begun again") for line in lines(found))
    node, error = (Incident(kind, "gone", "host:1", "k", 0) for kind in ("node", "error"))
    unlucky = dataclasses.replace(found, incidents=(node, node, error))
    (line,) = (line for line in lines(unlucky) if line.startswith("begun again"))
    assert line.split("  ")[-1].strip() == "3 times: node 2, error 1"
    assert [one["kind"] for one in unlucky.to_dict()["incidents"]] == ["node", "node", "error"]
