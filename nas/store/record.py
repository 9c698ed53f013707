"""Record the trainings and answers of commands in the runs of their sources.

``nas evaluate``, ``nas benchmark`` and ``nas explain`` of RUN/ID record into that run. A run that
cannot be written does not end the command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nas.common.errors import RunError
from nas.evaluation.trial import Purpose, Training
from nas.store.run import Command, open_run
from nas.store.writer import append_answer, append_training


class RunRecord:
    """Adds finished trainings and answers to some runs.

    Args:
        folders: folders of the runs, without regard to duplicates.
        on_error: called once with the reason if a run cannot be written.
    """

    def __init__(self, folders: Iterable[Path], on_error: Callable[[str], None]) -> None:
        self._folders, self._on_error = dict.fromkeys(folders), on_error

    def trainings(self, purpose: Purpose) -> list[Training]:
        """The recorded trainings of a purpose in all runs."""
        trainings: list[Training] = []
        for folder in self._folders:
            with open_run(folder) as run:
                trainings += run.trainings(purpose)
        return trainings

    def add(self, training: Training) -> None:
        """Record a finished training in each run."""
        self._write(lambda folder: append_training(folder, training))

    def add_answer(
        self, command: Command, question: Sequence[str], answer: Mapping[str, Any]
    ) -> None:
        """Record the command's JSON answer in each run."""
        self._write(lambda folder: append_answer(folder, command, question, answer))

    def _write(self, write: Callable[[Path], None]) -> None:
        for folder in list(self._folders):
            try:
                write(folder)
            except RunError as error:
                del self._folders[folder]
                self._on_error(f"the answer cannot be kept for the run's report: {error}")
