"""A run as event files for TensorBoard, from its record alone; needs their package.

    DIR/RUN/                        the search: a file a generation, its steps are trainings
    DIR/RUN/front/ID/               a member of the front: what it is, and its objectives (HParams)
    DIR/RUN/curves/ID-0/            one of its trainings: the steps are epochs

Each file is a function of the record and is there whole or not at all, under a name that says what
it holds. So whoever writes again adds what is missing and repeats nothing: after a generation,
after ``kill -9``, or once at the end. TensorBoard reads a folder's files in order of their names.
What has left the front is taken away: their HParams show a thousand at most, and a curve for each
candidate would drown those that matter.
"""

from __future__ import annotations

import io
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from nas.common.errors import ConfigError, RunError
from nas.report.run_view import id_length
from nas.searching.listener import Listener
from nas.store import open_run
from nas.store.files import write_whole
from nas.store.rows import from_datetime, training_from_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from nas.searching.listener import Ended, GenerationDone, Started
    from nas.store import Generation, PastTraining, Proposal, Run
    from nas.store.records import Estimate
    from nas.store.rows import Row

    Scalars = Mapping[str, float]

PREFIX: Final = "events.out.tfevents."
# Apart, since HParams take every scalar beneath a member's folder for a metric of it.
MEMBERS, CURVES = "front", "curves"
# What a member of the front is believed to be, beside the run's objectives.
P: Final = "p_non_dominated"


class EventFiles(Listener):
    """Keeps the event files of a run up to date while it is searched.

    Args:
        target: the folder for TensorBoard.
        complain: told why they cannot be written any more; the search goes on.

    Raises:
        ConfigError: TensorBoard's package is not installed.
    """

    def __init__(self, target: Path, complain: Callable[[str], None]) -> None:
        _library()
        self._target, self._complain = target, complain

    def on_start(self, event: Started) -> None:
        """Write what the record holds; here it is still early enough to give up."""
        self._folder = event.folder
        write_events(self._folder, self._target)

    def on_generation(self, event: GenerationDone) -> None:
        """Write what has come."""
        if not event.is_replayed:
            self._write()

    def on_end(self, _: Ended) -> None:
        """Write what has come."""
        self._write()

    def _write(self) -> None:
        try:
            write_events(self._folder, self._target)
        except RunError as error:
            self._complain(str(error))


def write_events(folder: Path, target: Path) -> tuple[Path, int]:
    """Bring the event files of a run up to date.

    Args:
        target: the folder for TensorBoard; the run has one of its name in it.

    Returns:
        The run's folder there, and how many files were written.

    Raises:
        ConfigError: TensorBoard's package is not installed.
        RunError: the run cannot be read, or the files cannot be written.
    """
    _library()
    with open_run(folder) as run, run.snapshot():
        own, files = target / run.name, _files(run)
    try:
        return own, _mirror(own, files)
    except OSError as error:
        raise RunError(
            f"{own}: event files cannot be written ({error.strerror}); choose a folder that you "
            "may write to, on a disk that is not full."
        ) from error


def _mirror(own: Path, files: Mapping[str, bytes]) -> int:
    """Write what is missing or other, take away what is ours and no longer so."""
    written = 0
    for name, content in files.items():
        path = own / name
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            # TensorBoard reads whatever has "tfevents" in its name, half a file too.
            part = path.with_name("part")
            write_whole(part, content)
            part.replace(path)
            written += 1
    for folder in (own / MEMBERS, own / CURVES):
        for path in folder.glob(f"*/{PREFIX}*"):
            if str(path.relative_to(own)) not in files:
                path.unlink()
                if not any(path.parent.iterdir()):
                    path.parent.rmdir()
    return written


def _files(run: Run) -> dict[str, bytes]:
    """All files of a run by name, beneath its own folder."""
    generations = run.generations()
    if not generations:
        return {}
    estimates = {one.key: one for one in run.estimates()}
    last, length = generations[-1], id_length(run.digests())
    members = [p for digest in last.front if (p := run.proposal(digest)) is not None]
    ended, trainings = run.read_rows("trials", lambda found: _read(found, {p.key for p in members}))
    objective = run.setup.objectives[0].name
    found = {_name("", one): _search_file(one, ended, objective) for one in generations}
    for member in members:
        short, key = member.digest[:length], str(member.key)
        about = _about(member, run.setup.population)
        found[_name(f"{MEMBERS}/{short}/", last)] = _member_file(short, about, estimates[key], last)
        for one in trainings.get(key, ()):
            found[f"{CURVES}/{short}-{one.repeat}/{PREFIX}nas"] = _curves_file(one)
    return found


def _read(
    found: list[Row], keys: set[str | None]
) -> tuple[list[tuple[str, bool]], dict[str, list[PastTraining]]]:
    """When each training ended and whether it failed, in order; those of some mechanisms whole."""
    trainings: dict[str, list[PastTraining]] = {}
    for row in found:
        if row["key"] in keys:
            trainings.setdefault(row["key"], []).append(training_from_row(row))
    return sorted((row["recorded"], row["status"] == "failed") for row in found), trainings


def _name(folder: str, one: Generation) -> str:
    return f"{folder}{PREFIX}{one.number:06}.nas"


def _search_file(one: Generation, ended: Sequence[tuple[str, bool]], objective: str) -> bytes:
    until = from_datetime(one.finished)
    failed = [is_failed for moment, is_failed in ended if moment <= until]
    scalars = {
        "search/hypervolume": one.hypervolume,
        "search/front_size": len(one.front),
        "search/failures": sum(failed),
    }
    if one.best is not None:
        scalars[f"search/best_{objective}"] = one.best
    return _file(one.finished.timestamp(), [(len(failed), scalars)])


def _member_file(
    name: str, about: Mapping[str, Any], believed: Estimate, last: Generation
) -> bytes:
    from tensorboard.plugins.hparams import summary_v2  # their api.py would import tensorflow

    moment = last.finished.timestamp()
    start = _settled(summary_v2.hparams_pb(about, trial_id=name, start_time_secs=moment))
    return _file(moment, [(last.number, {**believed.means, P: believed.p})], [start])


def _curves_file(one: PastTraining) -> bytes:
    steps = [
        (
            report.epoch,
            {f"epoch/{name}": value for name, value in report.metrics.items()}
            | {"epoch/train_loss": report.train_loss},
        )
        for report in one.evaluation.reports
    ]
    return _file(one.recorded.timestamp(), steps)


def _about(member: Proposal, population: int) -> dict[str, bool | float | str]:
    """What a mechanism is, as hyperparameters."""
    genome, window = member.genome, member.genome.visibility.window
    return {
        "formula": member.formula,
        "operations": ", ".join(node.op for node in genome.nodes),
        "nodes": len(genome.nodes),
        **asdict(genome.projections),
        "placement": genome.placement,
        "window": "all" if window is None else str(window),
        "global_tokens": genome.visibility.global_tokens,
        "made_by": member.operator,
        "generation": member.number // population + 1,
    }


def _settled(summary: Any) -> Any:
    """The same bytes every time: maps of a message have no order of their own."""
    from tensorboard.plugins.hparams import plugin_data_pb2

    about = summary.value[0].metadata.plugin_data
    data = plugin_data_pb2.HParamsPluginData.FromString(about.content)
    about.content = data.SerializeToString(deterministic=True)
    return summary


def _file(
    moment: float, steps: Iterable[tuple[int, Scalars]], summaries: Sequence[Any] = ()
) -> bytes:
    """An event file of one moment: values by tag at each step, after summaries of other kinds."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    events = [Event(wall_time=moment, file_version="brain.Event:2")]
    events += [Event(wall_time=moment, summary=summary) for summary in summaries]
    for step, scalars in steps:
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        events.append(Event(wall_time=moment, step=step, summary=Summary(value=values)))
    whole = io.BytesIO()
    writer = RecordWriter(whole)
    for event in events:
        writer.write(event.SerializeToString(deterministic=True))
    return whole.getvalue()


def _library() -> None:
    try:
        import tensorboard  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "the package tensorboard is not installed; run pip install 'nas[tensorboard]'."
        ) from error
