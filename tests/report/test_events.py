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

pytest.importorskip("tensorboard")


def read(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder)).Reload()


def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    return [(one.step, one.value) for one in read(folder).Scalars(tag)]


def folders(root: Path) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """All scalars by folder and tag."""
    found = {path.parent for path in root.rglob("events.out.tfevents.*")}
    return {
        str(folder.relative_to(root)): {
            tag: scalars(folder, tag) for tag in read(folder).Tags()["scalars"]
        }
        for folder in found
    }


def test_search_scalars_after_each_generation(recorded_run: Path, tmp_path: Path) -> None:
    own, written = write_events(recorded_run, tmp_path)
    assert own == tmp_path / "example"
    assert written == len([*own.rglob("events.out.tfevents.*")])
    with open_run(recorded_run) as run:
        generations, total = run.generations(), len(run.trainings())
    found = scalars(own, "search/hypervolume")
    assert found[-1][0] == total
    assert [step for step, _ in found] == sorted({step for step, _ in found})
    assert [v for _, v in found] == pytest.approx([g.hypervolume for g in generations])
    best = [v for _, v in scalars(own, "search/best_accuracy")]
    assert best == pytest.approx([g.best for g in generations])
    sizes = [v for _, v in scalars(own, "search/front_size")]
    assert sizes == [len(g.front) for g in generations]
    assert [v for _, v in scalars(own, "search/failures")] == [1, 1, 1]


def test_only_members_of_the_front_have_curves_and_hyperparameters(
    recorded_run: Path, tmp_path: Path
) -> None:
    own, _ = write_events(recorded_run, tmp_path)
    with open_run(recorded_run) as run:
        front = {digest[:8] for digest in run.generations()[-1].front}
        assert front == {path.name for path in (own / "front").iterdir()}
        candidates = run.candidates()
        trained = {
            f"{candidate.digest[:8]}-{training.repeat}"
            for candidate in candidates
            for training in candidate.trainings
            if candidate.digest[:8] in front
        }
        assert trained == {path.name for path in (own / "curves").iterdir()}
        assert len(front) < len(candidates)
        for short in front:
            check_member(run, short, own)


def check_member(run: Run, short: str, own: Path) -> None:
    digest = next(digest for digest in run.digests() if digest.startswith(short))
    proposal = run.proposal(digest)
    assert proposal is not None
    estimate = next(one for one in run.estimates() if one.key == proposal.key)
    member = own / "front" / short
    for name, value in estimate.means.items():
        assert scalars(member, name) == [(2, pytest.approx(value))]
    assert scalars(member, "p_non_dominated") == [(2, pytest.approx(estimate.p))]
    evaluation = run.trainings(key=proposal.key)[0].evaluation
    curve = scalars(own / "curves" / f"{short}-0", "epoch/accuracy")
    assert curve == [(r.epoch, pytest.approx(r.metrics["accuracy"])) for r in evaluation.reports]


def test_tensorboard_finds_hyperparameters_and_metrics(recorded_run: Path, tmp_path: Path) -> None:
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
    named = {info.name.tag for info in experiment.metric_infos}
    assert named == {"accuracy", "macs", "p_non_dominated"}


class Killed(Exception):  # noqa: N818
    pass


class Until(EventFiles):
    """Ends a process in the middle: after two generations, their files written or not."""

    def __init__(self, target: Path, *, is_written: bool) -> None:
        super().__init__(target, pytest.fail)
        self.left, self.is_written = 2, is_written

    def on_start(self, event: Started) -> None:
        super().on_start(event)
        self.folder = event.folder

    def on_generation(self, event: GenerationDone) -> None:
        self.left -= 1
        if self.left > 0 or self.is_written:
            super().on_generation(event)
        if not self.left:
            raise Killed


@pytest.mark.parametrize("is_written", [True, False])
def test_a_killed_and_resumed_run_has_the_events_of_an_uninterrupted_one(
    make_run: MakeRun, tmp_path: Path, is_written: bool
) -> None:
    killed = Until(tmp_path / "live", is_written=is_written)
    with pytest.raises(Killed):
        make_run(tmp_path / "runs", listener=killed)
    early = folders(tmp_path / "live" / "example")
    go_on(killed.folder, listener=EventFiles(tmp_path / "live", pytest.fail))
    write_events(killed.folder, tmp_path / "after")
    late = folders(tmp_path / "live" / "example")
    assert late == folders(tmp_path / "after" / "example")
    assert len(late["."]["search/hypervolume"]) == 3
    assert early.keys() - late.keys()  # members that have left the front


def test_writing_again_repeats_nothing_and_keeps_foreign_files(
    recorded_run: Path, tmp_path: Path
) -> None:
    own, written = write_events(recorded_run, tmp_path)
    foreign = [own / "front" / "mine" / "notes.txt", own / "events.out.tfevents.1.host"]
    foreign[0].parent.mkdir()
    for path in foreign:
        path.write_bytes(b"")
    before = folders(own)
    assert write_events(recorded_run, tmp_path) == (own, written)
    assert folders(own) == before
    assert all(path.is_file() for path in foreign)


def test_a_run_without_a_generation_has_no_events(make_run: MakeRun, tmp_path: Path) -> None:
    seen: list[int] = []

    class First(Listener):
        def on_start(self, event: Started) -> None:
            seen.append(write_events(event.folder, tmp_path / "tb")[1])

    make_run(tmp_path, generations=1, listener=First())
    assert seen == [0]


def test_without_the_package_an_error_names_the_extra(
    recorded_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    for write in (
        lambda: write_events(recorded_run, tmp_path),
        lambda: EventFiles(tmp_path, print),
    ):
        with pytest.raises(ConfigError, match=r"pip install 'attention-nas\[tensorboard\]'"):
            write()


def test_a_folder_that_cannot_be_written_stops_no_search(make_run: MakeRun, tmp_path: Path) -> None:
    taken = tmp_path / "file"
    complaints: list[str] = []

    class Late(EventFiles):
        def on_start(self, event: Started) -> None:
            super().on_start(event)
            taken.write_text("no folder")

    folder = make_run(tmp_path, generations=1, listener=Late(taken, complaints.append))
    with open_run(folder) as run:
        assert run.status == "finished"
    assert len(complaints) == 1
    assert "event files cannot be written" in complaints[0]
    with pytest.raises(RunError, match="event files cannot be written"):
        write_events(folder, taken)
