"""Record trainings of commands other than the search, and the results of ``nas explain``.

``nas evaluate`` and ``nas explain`` of RUN/ID (a mechanism of a run) add such records to that run.
They need no lock, since SQLite serialises transactions, so that a search may write the run at the
same time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nas.common.errors import RunError
from nas.evaluation.trial import Purpose, Training
from nas.store.database import Database
from nas.store.run import database_file, open_run
from nas.store.serialising import to_json
from nas.store.writer import delete_failure, utc_now


class RunRecord:
    """Adds finished trainings and JSON results of a command to some runs.

    If a run cannot be written, the error is reported once, and the run is left out from then on.

    Args:
        folders: folders of the runs; duplicates are ignored.
        on_error: called with an error message for each run that cannot be written.
    """

    def __init__(self, folders: Iterable[Path], on_error: Callable[[str], None]) -> None:
        self._folders, self._on_error = dict.fromkeys(folders), on_error

    def trainings(self, purpose: Purpose) -> list[Training]:
        """Return the trainings of all runs that served a purpose, for example "evaluate"."""
        trainings: list[Training] = []
        for folder in self._folders:
            with open_run(folder) as run:
                trainings += run.trainings(purpose)
        return trainings

    def add(self, training: Training) -> None:
        """Record a finished training in each run."""
        self._write(lambda folder: append_training(folder, training))

    def add_answer(self, question: Sequence[str], answer: Mapping[str, Any]) -> None:
        """Record the JSON result of ``nas explain`` in each run, see ``append_answer``."""
        self._write(lambda folder: append_answer(folder, question, answer))

    def _write(self, write: Callable[[Path], None]) -> None:
        for folder in list(self._folders):
            try:
                write(folder)
            except RunError as error:
                del self._folders[folder]
                self._on_error(f"the answer cannot be kept for the run's report: {error}")


def append_training(folder: Path, training: Training) -> None:
    """Record a training. It replaces a failure of the same training, but never a success.

    Raises:
        RunError: the run cannot be written.
    """
    row = {"record": to_json(replace(training, recorded=utc_now()))}
    with Database.appending(database_file(folder)) as database, database.transaction():
        delete_failure(database, training)
        database.insert("trainings", row, "IGNORE")


def append_answer(folder: Path, question: Sequence[str], answer: Mapping[str, Any]) -> None:
    """Record the JSON result of ``nas explain``; it replaces one to the same question.

    Args:
        question: texts that identify the question: digests of mechanisms, fingerprints of tasks.

    Raises:
        RunError: the run cannot be written.
    """
    row = {
        "question": hashlib.sha256("\n".join(question).encode()).hexdigest()[:16],
        "recorded": utc_now().isoformat(),
        "record": to_json(dict(answer)),
    }
    with Database.appending(database_file(folder)) as database:
        database.insert("answers", row, "REPLACE")
