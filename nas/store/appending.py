"""Record trainings of commands other than the search, and the results of ``nas explain``.

``nas evaluate`` and ``nas explain`` of RUN/ID (a mechanism of a run) add such records to that run.
They need no lock, since SQLite serialises transactions, so that a search may write the run at the
same time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nas.common.errors import RunError
from nas.evaluation.trial import Purpose, Training
from nas.store.database import Database
from nas.store.run import database_file, open_run
from nas.store.serialising import to_json
from nas.store.writer import insert_training, utc_now


class RunRecord:
    """Adds finished trainings and JSON results of a command to some runs.

    If a run cannot be written, ``on_error`` is called once with a message, and the run is left out
    from then on.
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
        """Record a training. It replaces a failure of the same training, but never a success."""
        now = utc_now()
        self._write(lambda database: insert_training(database, training, now, "IGNORE"))

    def add_answer(self, question: Sequence[str], answer: Mapping[str, Any]) -> None:
        """Record the JSON result of ``nas explain``; it replaces one to the same question.

        ``question`` are the texts that identify it: digests of mechanisms, fingerprints of tasks.
        """
        row = {
            "question": hashlib.sha256("\n".join(question).encode()).hexdigest()[:16],
            "recorded": utc_now().isoformat(),
            "record": to_json(dict(answer)),
        }
        self._write(lambda database: database.insert("answers", row, "REPLACE"))

    def _write(self, write: Callable[[Database], object]) -> None:
        for folder in list(self._folders):
            try:
                path = database_file(folder)
                with Database.open_to_write(path) as database, database.transaction():
                    write(database)
            except RunError as error:
                del self._folders[folder]
                self._on_error(f"the answer cannot be kept for the run's report: {error}")
