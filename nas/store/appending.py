"""Trainings and results of the commands that train without a search.

They are recorded in the runs whose mechanisms a command trains, and in the file of ``--record``,
which has the tables of a run. A run needs no lock for this, since SQLite serialises transactions:
a search may write the run at the same time.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from nas.common.errors import NasWarning, RunError
from nas.evaluation.trial import Purpose, Training
from nas.store.database import Database
from nas.store.records import to_json
from nas.store.run import Run, database_file, open_run
from nas.store.writer import insert_training, utc_now


class RunRecord(AbstractContextManager["RunRecord"]):
    """Adds finished trainings and JSON results of a command to some runs and to a file.

    If a run cannot be written, a NasWarning says so, and the run is left out from then on. The file
    is created if it does not exist, and one process at a time may use it.

    Raises:
        RunError: the file holds something else, another process uses it, or it cannot be written.
    """

    def __init__(self, folders: Iterable[Path], file: str | Path | None) -> None:
        self._folders = dict.fromkeys(folders)
        self._file = None
        if file is not None:
            path = Path(file)
            if not path.exists():
                Database.create(path).close()
            self._file = Run(path, Database.open_to_write(path, is_exclusive=True))

    def trainings(self, purpose: Purpose) -> list[Training]:
        """Return the recorded trainings that served a purpose, in the order of their ends."""
        trainings = [*(self._file.trainings(purpose) if self._file else ())]
        for folder in self._folders:
            with open_run(folder) as run:
                trainings += run.trainings(purpose)
        return sorted(trainings, key=lambda training: training.recorded)

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

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def _write(self, write: Callable[[Database], object]) -> None:
        if self._file is not None:
            with self._file.database.transaction():
                write(self._file.database)
        for folder in list(self._folders):
            try:
                path = database_file(folder)
                with Database.open_to_write(path) as database, database.transaction():
                    write(database)
            except RunError as error:
                del self._folders[folder]
                text = f"the answer cannot be kept for the run's report: {error}"
                warnings.warn(text, NasWarning, stacklevel=2)
