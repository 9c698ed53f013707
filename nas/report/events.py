"""Send the numbers of a search to TensorBoard, Weights & Biases, MLflow or another tracker.

TensorBoard's event files show the record of a run; torch's ``SummaryWriter`` writes them:

    DIR/RUN/                     hypervolume, size of the front, number of failures, and best value
                                 of the first objective, against the number of trainings
    DIR/RUN/front/ID/            hyperparameters and objectives of a mechanism of the front
    DIR/RUN/curves/ID-REPEAT/    metrics and training loss of one training, against epochs

Each write replaces all files, so that no value is duplicated after a resume or ``kill -9``. Only
mechanisms of the front have files, because TensorBoard's HParams plug-in shows at most a thousand.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from nas.common.distribution import install_command
from nas.common.errors import ConfigError, RunError
from nas.report.run_view import RunView
from nas.searching.listener import GenerationDone, Listener, SearchResult, Started
from nas.store import Candidate, open_run

SUFFIX: Final = ".nas"
TRACKERS: Final = ("wandb", "mlflow")
MEMBERS, CURVES = "front", "curves"


class EventFiles(Listener):
    """A listener that keeps TensorBoard's event files of a run up to date during the search.

    Args:
        target: folder for TensorBoard, in which the run has a folder with its name.
        complain: function that is called with the reason if the files cannot be written during the
            search; the search continues.

    Raises:
        ConfigError: TensorBoard's package is not installed.
    """

    def __init__(self, target: Path, complain: Callable[[str], None]) -> None:
        _check_library()
        self._target, self._complain = target, complain

    def on_start(self, event: Started) -> None:
        """Write the run's event files before the search.

        Raises:
            RunError: the files cannot be written; the search does not start.
        """
        self._folder = event.folder
        write_events(self._folder, self._target)

    def on_generation(self, event: GenerationDone) -> None:
        """Write the run's event files, unless a resumed search repeats a recorded generation."""
        if not event.is_replayed:
            self._write()

    def on_end(self, _: SearchResult) -> None:
        """Write the run's event files after the search."""
        self._write()

    def _write(self) -> None:
        try:
            write_events(self._folder, self._target)
        except RunError as error:
            self._complain(str(error))


class Tracker(Listener):
    """A listener that sends the numbers of a search to a tracker of experiments.

    After each generation they are its hypervolume, size of the front, number of failures and best
    estimate of the first objective, under the names that TensorBoard shows.

    Examples:
        >>> numbers = []
        >>> tracker = nas.Tracker(lambda values, step: numbers.append((step, values)))
        >>> result = nas.search("quickstart", generations=1, population=2, task="tiny.yaml",
        ...                     run="tracked", backend="local", listener=tracker)
        >>> [(step, *values)[:2] for step, values in numbers]
        [(2, 'search/hypervolume')]

    Args:
        log: function that is called with the numbers by name and ``step``, the number of trainings:
            ``mlflow.log_metrics``, or ``wandb.init(project="attention").log``. If it raises an
            exception, the search ends, and can be resumed.
    """

    def __init__(self, log: Callable[..., object]) -> None:
        self._log = log

    @classmethod
    def named(cls, name: str, complain: Callable[[str], None]) -> Tracker:
        """Return the tracker "wandb" or "mlflow" as its environment variables configure it.

        Args:
            complain: function that is called with the reason if the tracker does not accept the
                numbers of a generation; the search continues.

        Raises:
            ConfigError: there is no such tracker, or its package is not installed.
        """
        if name not in TRACKERS:
            raise ConfigError(f"there is no tracker {name!r}; expected {' or '.join(TRACKERS)}.")
        try:
            library: Any = import_module(name)
        except ImportError as error:
            raise ConfigError(
                f"the package {name} is not installed; run `pip install {name}`."
            ) from error

        def send(values: dict[str, float], step: int) -> None:
            try:
                if name == "wandb":
                    # Without ``commit`` the numbers of a generation appear after the next one.
                    (library.run or library.init()).log(values, step=step, commit=True)
                else:
                    library.log_metrics(values, step=step)
            except Exception as error:
                complain(f"{name} did not accept the numbers of a generation: {error}")

        return cls(send)

    def on_start(self, event: Started) -> None:
        """Remember the run's folder."""
        self._folder = event.folder

    def on_generation(self, event: GenerationDone) -> None:
        """Send the numbers, unless a resumed search repeats a recorded generation."""
        if event.is_replayed:
            return
        with open_run(self._folder) as run:
            view = RunView.read(run)
        # With a lag of more than a generation, several generations may end at once.
        for generation, (step, _, values) in zip(
            view.generations, _search_values(view), strict=True
        ):
            if generation.number == event.generation.number:
                self._log(values, step=step)


def write_events(folder: Path, target: Path) -> tuple[Path, int]:
    """Write TensorBoard's event files of a run.

    Args:
        folder: folder of the run.
        target: folder for TensorBoard, in which the run has a folder with its name.

    Returns:
        The run's folder in ``target``, and the number of files.

    Raises:
        ConfigError: TensorBoard's package is not installed.
        RunError: the run cannot be read, or the files cannot be written.
    """
    _check_library()
    with open_run(folder) as run:
        view = RunView.read(run)
    root = target / view.name
    try:
        for path in [*root.rglob(f"events.out.tfevents.*{SUFFIX}")]:
            path.unlink()
            if path.parent != root and not any(path.parent.iterdir()):
                path.parent.rmdir()
        return root, _write_all(view, root) if view.generations else 0
    except OSError as error:
        raise RunError(
            f"{root}: event files cannot be written ({error.strerror}); choose a folder that you "
            "may write to, on a disk that is not full."
        ) from error


def _write_all(view: RunView, root: Path) -> int:
    members = {member.key: member for member in view.members if member.p is not None}
    _write_search(view, root)
    for member in members.values():
        _write_member(view, member, root / MEMBERS / view.short(member))
    trainings = [training for training in view.trainings if training.key in members]
    for training in trainings:
        task = "-target" if training.purpose == "target" else ""
        name = f"{view.short(members[training.key])}-{training.repeat}{task}"
        with _writer(root / CURVES / name) as writer:
            for report in training.evaluation.reports:
                values = {**report.metrics, "train_loss": report.train_loss}
                for metric, value in values.items():
                    moment = training.recorded.timestamp()
                    writer.add_scalar(f"epoch/{metric}", value, report.epoch, moment)
    return 1 + len(members) + len(trainings)


def _write_search(view: RunView, root: Path) -> None:
    with _writer(root) as writer:
        for step, moment, values in _search_values(view):
            for name, value in values.items():
                writer.add_scalar(name, value, step, moment)


def _search_values(view: RunView) -> Iterator[tuple[int, float, dict[str, float]]]:
    """Yield for each generation the trainings so far, its end as a timestamp, and its numbers."""
    ended = sorted((t.recorded, t.evaluation.status == "failed") for t in view.trainings)
    moments = [moment for moment, _ in ended]
    for generation in view.generations:
        step = bisect_right(moments, generation.finished)
        values = {
            "search/hypervolume": generation.hypervolume,
            "search/front_size": len(generation.front),
            "search/failures": sum(is_failed for _, is_failed in ended[:step]),
            f"search/best_{view.setup.objectives[0].name}": generation.best,
        }
        known = {name: float(value) for name, value in values.items() if value is not None}
        yield step, generation.finished.timestamp(), known


def _write_member(view: RunView, member: Candidate, folder: Path) -> None:
    from torch.utils.tensorboard.summary import hparams

    names = [objective.name for objective in view.setup.objectives]
    metrics = {name: member.objectives[name] for name in names} | {"p_non_dominated": member.p}
    genome, window = member.proposal.genome, member.proposal.genome.visibility.window
    hyperparameters = {
        "formula": member.proposal.formula,
        "operations": ", ".join(node.op for node in genome.nodes),
        "nodes": len(genome.nodes),
        **asdict(genome.projections),
        "placement": str(genome.placement),
        "window": "all" if window is None else str(window),
        "global_tokens": genome.visibility.global_tokens,
        "made_by": member.proposal.operator,
        "generation": member.proposal.number // view.setup.config.population + 1,
    }
    summaries = hparams(hyperparameters, metrics)  # type: ignore[no-untyped-call]
    with _writer(folder) as writer:
        for summary in summaries:
            writer.file_writer.add_summary(summary)
        for name, value in metrics.items():
            writer.add_scalar(name, value, view.generations[-1].number)


def _writer(folder: Path) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    # purge_step makes a running TensorBoard drop the values of the replaced files.
    return SummaryWriter(folder, purge_step=0, filename_suffix=SUFFIX)


def _check_library() -> None:
    try:
        import tensorboard  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"the package tensorboard is not installed; run {install_command('tensorboard')}."
        ) from error
