"""A confirmation trains with fresh seeds, is resumed, and compares with standard attention."""

from __future__ import annotations

import shutil
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from nas.common.errors import ConfigError, NasError, RunError
from nas.common.objectives import SearchConfig
from nas.common.rates import CHOOSING_SEEDS
from nas.evaluation.trial import training_seed
from nas.report.confirmation import make_confirmation
from nas.report.run_view import RunView
from nas.searching.confirm import confirm_run, plan_confirmation
from nas.searching.driver import run_search
from nas.store import named_members, open_run, open_writer
from nas.store.sources import resolve

from .conftest import SPACE, Table, small_task

FEW = {"seeds": 3, "members": 3, "rates": False}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with invented trainings."""
    words = {"root": tmp_path_factory.mktemp("runs"), "make_evaluator": lambda *_: Table()}
    settings = SearchConfig("nsga2", population=8, generations=3, seed=4)
    return run_search(SPACE, small_task(), settings, **words).folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "run")


def confirm(folder: Any, table: Any, **options: Any) -> dict[str, Any]:
    if "against" in options:
        options["against"] = resolve(options["against"])
    with open_writer(folder, None) as writer:
        plan = plan_confirmation(writer.run, **{**FEW, **options})
        for _ in confirm_run(writer, plan, lambda *_: table):
            pass
        return make_confirmation(writer.run, plan).to_dict()


def test_confirmation_trains_members_with_fresh_seeds(folder: Any) -> None:
    table = Table()
    answer = confirm(folder, table)
    with open_run(folder) as run:
        members, recorded = run.front(), run.trainings("confirm")
        named = {m.digest for m in named_members(run.setup.objectives, members).values()}
        searched = {found.seed for found in (t.evaluation for t in run.trainings())}
        assert run.status == "finished"
        assert len(run.sessions()) == 1
    assert named <= {one["id"] for one in answer["rows"]}
    assert [one["mechanism"] for one in answer["rows"]][-2:] == ["mha", "uniform"]
    seeds = {seed for _, seed in table.trained}
    assert seeds == {training_seed(4, "confirm", repeat) for repeat in range(3)}
    assert not seeds & searched
    assert len(table.trained) == len(recorded) == 3 * len(answer["rows"])
    assert {(one.stage, one.task_name) for one in recorded} == {("search", "vit-cifar10")}
    assert answer["against"] == "mha"
    *_, mha, uniform = answer["rows"]
    assert mha["parts"]["fresh"]["difference"] is None
    assert [*uniform["parts"]] == ["fresh"]
    assert mha["found"]["estimate"] is not None
    for one in answer["rows"]:
        own, base = (row["parts"]["fresh"]["values"] for row in (one, mha))
        if None not in own and one is not mha:
            gains = [a - b for a, b in zip(own, base, strict=True)]
            assert one["parts"]["fresh"]["difference"]["mean"] == pytest.approx(fmean(gains))


def test_interrupted_confirmation_resumes_and_repeats_only_lost_trainings(folder: Any) -> None:
    first, second, third = Table(stop_after=4), Table(), Table()
    with pytest.raises(KeyboardInterrupt):
        confirm(folder, first)
    assert first.closed
    second.lost_repeats = {training_seed(4, "confirm", 2)}
    rows = confirm(folder, second)["rows"]
    assert not set(first.trained) & set(second.trained)
    assert len(first.trained + second.trained) == 3 * len(rows)
    answer = confirm(folder, third)
    assert {seed for _, seed in third.trained} == second.lost_repeats
    with open_run(folder) as run:
        assert "worker_lost" not in {one.evaluation.reason for one in run.trainings("confirm")}
    last = Table()
    assert confirm(folder, last) == answer
    assert last.trained == []
    more = confirm(folder, last, seeds=4)
    assert len(last.trained) == len(more["rows"])


def test_confirmation_by_id_under_other_tasks(folder: Any) -> None:
    answer = confirm(folder, Table(), ids=["cheapest"], long="comparison", is_tested=True)
    assert len(answer["rows"]) <= 3
    assert answer["tasks"] == {"fresh": "vit-cifar10", "long": "comparison", "test": "comparison"}
    with open_run(folder) as run:
        found = run.trainings("confirm")
    tasks = {one.stage: one.task for one in found}
    assert len(set(tasks.values())) == 3
    assert {one.stage for one in found} == {"search", "long", "test"}


def test_confirmation_compares_with_a_further_mechanism(folder: Any) -> None:
    table, again = Table(), Table()
    answer = confirm(folder, table, against="sqa:window=4")
    *members, other = answer["rows"]
    assert answer["against"] == other["mechanism"] == "sqa:window=4"
    assert other["parts"]["fresh"]["difference"] is None
    assert other["found"]["estimate"] is None
    assert {seed for _, seed in table.trained} == {training_seed(4, "confirm", i) for i in range(3)}
    successful = [one["parts"]["fresh"] for one in members]
    successful = [part for part in successful if None not in part["values"]]
    assert successful
    for part in successful:
        pairs = zip(part["values"], other["parts"]["fresh"]["values"], strict=True)
        assert part["difference"]["mean"] == pytest.approx(fmean(a - b for a, b in pairs))
    same = confirm(folder, again, against="mha")
    assert again.trained == []
    assert [one["id"] for one in same["rows"]] == [one["id"] for one in members]
    assert same == confirm(folder, again)
    with open_run(folder) as run:
        best, *_ = run.front()
    own = confirm(folder, again, against=best.proposal.genome)
    assert again.trained == []
    assert {row["id"]: row["mechanism"] for row in own["rows"]}[best.digest] == own["against"]


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"seeds": 0}, ConfigError, "seeds: found 0"),
        ({"ids": ["zz"]}, RunError, "no genome of this run"),
        ({"long": "comparisn"}, NasError, "did you mean 'comparison'"),
        ({"long": "bytes"}, ConfigError, "family 'bytes'; expected one of .* family, 'images'"),
        ({"data": "digit"}, ConfigError, "did you mean 'digits'"),
        ({"rates": True, "is_tested": True}, ConfigError, "chosen and compared on validation"),
    ],
)
def test_invalid_argument_is_refused(folder: Any, options: Any, kind: Any, words: str) -> None:
    with open_writer(folder, None) as writer, pytest.raises(kind, match=words):
        plan_confirmation(writer.run, **options)


def test_rates_left_open_are_trained_and_recorded_apart(folder: Any) -> None:
    first, again = Table(), Table()
    answer = confirm(folder, first, rates=None)  # the default: the task offers rates
    num_rates, num_open = 3, 2  # Table is worse at the highest rate
    assert confirm(folder, again, rates=True) == answer
    assert again.trained == []
    *_, mha, _ = answer["rows"]
    trained = [one for one in answer["rows"] if not one["parts"]["fresh"]["failed"]]
    assert mha in trained
    chosen = num_rates * CHOOSING_SEEDS * len(answer["rows"])
    plain = confirm(folder, again)
    assert plain["tuning"] is None
    missing = FEW["seeds"] - CHOOSING_SEEDS  # of mechanisms with a failed training
    assert len(again.trained) == missing * (len(answer["rows"]) - len(trained))
    assert len(first.trained) == chosen + num_open * FEW["seeds"] * len(trained)
    for one in answer["rows"]:
        part = one["parts"]["fresh"]
        if one not in trained:
            assert (part["learning_rate"], part["rates"], part["mean"]) == (None, {}, None)
            continue
        assert list(part["rates"]) == ["0.001", "0.003"]
        assert part["mean"] == pytest.approx(part["rates"][f"{part['learning_rate']:g}"])
        assert len(part["values"]) == FEW["seeds"]
        if one is not mha:
            lead = part["difference"]
            # Equal gains, as this evaluator may give, have no interval.
            assert lead["low"] is None or lead["low"] <= lead["mean"] <= lead["high"]
            assert lead["verdict"] == "undecided"
    further = len(first.trained) - FEW["seeds"] * len(trained)
    assert answer["tuning"]["trainings"] == further
    with open_run(folder) as run:
        recorded, view = run.trainings("confirm"), RunView.read(run)
        assert len({training.task for training in recorded}) == num_rates
    assert {t.learning_rate for t in view.confirmations} == {0.001, 0.003, 0.01}
    printed = {one["id"]: one["parts"]["fresh"] for one in answer["rows"]}
    assert view.metric is not None
    for (_, key), cell in view.confirmation(view.metric).cells.items():
        if candidate := view.trained.get(key):
            told = cell.to_dict()
            for name in ("learning_rate", "mean", "values", "difference"):
                assert told[name] == printed[candidate.digest][name]
