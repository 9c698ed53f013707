"""Event files, read back as TensorBoard reads them: nothing repeated, nothing lost."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from nas.common.errors import ConfigError, RunError
from nas.report.events import EventFiles, write_events
from nas.searching.listener import GenerationDone, Listener, Started
from nas.store import Run, open_run
from tests.recorded_run import MakeRun, go_on


def read(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder)).Reload()


def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    return [(one.step, one.value) for one in read(folder).Scalars(tag)]


def contents(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_a_search_over_its_trainings(recorded_run: Path, tmp_path: Path) -> None:
    own, written = write_events(recorded_run, tmp_path)
    assert own == tmp_path / "example"
    assert written == len(contents(own))
    with open_run(recorded_run) as run:
        generations, total = run.generations(), len(run.evaluations())
    found = scalars(own, "search/hypervolume")
    assert found[-1][0] == total
    assert [step for step, _ in found] == sorted({step for step, _ in found})
    assert [v for _, v in found] == pytest.approx([g.hypervolume for g in generations])
    best = [v for _, v in scalars(own, "search/best_accuracy")]
    assert best == pytest.approx([g.best for g in generations])
    sizes = [v for _, v in scalars(own, "search/front_size")]
    assert sizes == [len(g.front) for g in generations]
    assert [v for _, v in scalars(own, "search/failures")] == [1, 1, 1]


def test_curves_and_hyperparameters_are_those_of_the_front_alone(
    recorded_run: Path, tmp_path: Path
) -> None:
    own, _ = write_events(recorded_run, tmp_path)
    with open_run(recorded_run) as run:
        front = {digest[:8] for digest in run.generations()[-1].front}
        assert front == {path.name for path in (own / "front").iterdir()}
        trained = {
            f"{p.digest[:8]}-{repeat}"
            for (key, repeat) in run.evaluations()
            if (p := run.new_proposals([key]).get(key)) is not None and p.digest[:8] in front
        }
        assert trained == {path.name for path in (own / "curves").iterdir()}
        assert len(front) < len(run.results())
        for short in front:
            check_member(run, short, own)


def check_member(run: Run, short: str, own: Path) -> None:
    digest = next(digest for digest in run.digests() if digest.startswith(short))
    proposal = run.proposal(digest)
    assert proposal is not None
    believed = next(one for one in run.estimates() if one.key == proposal.key)
    member = own / "front" / short
    for name, value in believed.means.items():
        assert scalars(member, name) == [(2, pytest.approx(value))]
    assert scalars(member, "p_non_dominated") == [(2, pytest.approx(believed.p))]
    evaluation = run.evaluation(str(proposal.key), 0)
    assert evaluation is not None
    curve = scalars(own / "curves" / f"{short}-0", "epoch/accuracy")
    assert curve == [(r.epoch, pytest.approx(r.metrics["accuracy"])) for r in evaluation.reports]


def test_tensorboard_finds_the_hyperparameters_and_which_scalars_are_metrics(
    recorded_run: Path, tmp_path: Path
) -> None:
    from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
    from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
    from tensorboard.context import RequestContext
    from tensorboard.plugins.base_plugin import TBContext
    from tensorboard.plugins.hparams.backend_context import Context

    write_events(recorded_run, tmp_path)
    multiplexer = EventMultiplexer().AddRunsFromDirectory(str(tmp_path)).Reload()
    context = Context(TBContext(data_provider=MultiplexerDataProvider(multiplexer, "")))
    asked = RequestContext()
    metadata = context.hparams_metadata(asked, "")
    experiment = context.experiment_from_metadata(asked, "", True, metadata, ())
    infos = {info.name: info for info in experiment.hparam_infos}
    assert infos.keys() >= {"formula", "operations", "q_heads", "window"}
    generations = infos["generation"].domain_interval  # counted as people do
    assert (generations.min_value, generations.max_value) == (1, 3)
    named = {(info.name.group, info.name.tag) for info in experiment.metric_infos}
    assert named == {("", "accuracy"), ("", "macs"), ("", "p_non_dominated")}


class Killed(Exception):  # noqa: N818
    pass


class Until(EventFiles):
    """Ends a process in the middle: after so many generations, their files written or not."""

    def __init__(self, target: Path, generations: int, *, is_written: bool = True) -> None:
        super().__init__(target, pytest.fail)
        self.left, self.is_written = generations, is_written
        self.seen: list[set[str]] = []

    def on_start(self, event: Started) -> None:
        super().on_start(event)
        self.folder = event.folder

    def on_generation(self, event: GenerationDone) -> None:
        self.left -= 1
        if self.left > 0 or self.is_written:
            super().on_generation(event)
            self.seen.append(set(contents(self._target)))
        if not self.left:
            raise Killed


@pytest.mark.parametrize("is_written", [True, False])
def test_a_run_that_was_killed_and_resumed_has_the_events_of_one_that_was_not(
    make_run: MakeRun, tmp_path: Path, is_written: bool
) -> None:
    killed = Until(tmp_path / "live", 2, is_written=is_written)
    with pytest.raises(Killed):
        make_run(tmp_path / "runs", listener=killed)
    early = contents(tmp_path / "live" / "example")
    go_on(killed.folder, listener=EventFiles(tmp_path / "live", pytest.fail))
    write_events(killed.folder, tmp_path / "after")
    late = contents(tmp_path / "live" / "example")
    assert late == contents(tmp_path / "after" / "example")
    assert len(scalars(tmp_path / "live" / "example", "search/hypervolume")) == 3
    # What has been read of the search may have been read by TensorBoard: it stays as it was.
    kept = {name: text for name, text in early.items() if "/" not in name}
    assert kept
    assert kept.items() <= late.items()
    # Members that have left the front are gone.
    assert {name.split("/")[1] for name in late if name.startswith("front/")} != {
        name.split("/")[1] for name in early if name.startswith("front/")
    }


def test_writing_again_writes_nothing_and_touches_what_is_not_ours(
    recorded_run: Path, tmp_path: Path
) -> None:
    own, _ = write_events(recorded_run, tmp_path)
    mine = own / "front" / "mine" / "notes.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    before = contents(tmp_path)
    assert write_events(recorded_run, tmp_path) == (own, 0)
    assert contents(tmp_path) == before


def test_no_file_is_seen_before_it_is_whole(
    recorded_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorBoard reads every file with this word in its name, and ``kill -9`` may leave one."""
    seen: set[tuple[str, bytes]] = set()

    def look(_: int) -> None:
        seen.update(contents(tmp_path).items())

    monkeypatch.setattr("nas.store.files.os.fsync", look)
    write_events(recorded_run, tmp_path)
    partly = {(name, text) for name, text in seen if "tfevents" in name}
    assert partly
    assert partly <= set(contents(tmp_path).items())


def test_a_run_without_a_generation_has_no_events(make_run: MakeRun, tmp_path: Path) -> None:
    seen: list[int] = []

    class First(Listener):
        def on_start(self, event: Started) -> None:
            seen.append(write_events(event.folder, tmp_path / "tb")[1])

    make_run(tmp_path, generations=1, listener=First())
    assert seen == [0]


def test_without_the_package_there_is_one_sentence(
    recorded_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    sentence = r"tensorboard is not installed; run pip install 'nas\[tensorboard\]'"
    with pytest.raises(ConfigError, match=sentence):
        write_events(recorded_run, tmp_path)
    with pytest.raises(ConfigError, match=sentence):
        EventFiles(tmp_path, print)


def test_a_folder_that_cannot_be_written_stops_no_search(make_run: MakeRun, tmp_path: Path) -> None:
    taken = tmp_path / "file"
    told: list[str] = []

    class Late(EventFiles):
        def on_start(self, event: Started) -> None:
            super().on_start(event)
            taken.write_text("no folder")

    folder = make_run(tmp_path, generations=1, listener=Late(taken, told.append))
    with open_run(folder) as run:
        assert run.status == "finished"
    assert len(told) == 1
    assert "event files cannot be written" in told[0]
    with pytest.raises(RunError, match="event files cannot be written"):
        write_events(folder, taken)
