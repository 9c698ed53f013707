"""A file of finished trainings, ``--record FILE``, from which a long comparison can be resumed.

Each finished training is appended as one JSON line, with the digests of mechanism, task and data
and the training seed. A failed training runs again when the comparison is resumed. This module
imports no torch.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nas.common.errors import RunError
from nas.evaluation.trial import Evaluation, Evaluator, Incident, Trial, is_retried
from nas.genome import Genome

if TYPE_CHECKING:
    from nas.tasks import Data, Task

# Start of each line. It distinguishes the incomplete line of a killed process from other text.
_BEGINNING: Final = '{"mechanism": "'


class JournaledEvaluator:
    """An `Evaluator` that returns the evaluations of trials from a file of finished trainings.

    It trains all other trials with another evaluator, and adds their evaluations to the file. The
    file is created with its parent folders. One process at a time may use it.

    Raises:
        RunError: the file was not written by this class (it is left unchanged), another process
            uses it, or it cannot be read or written.
    """

    def __init__(self, evaluator: Evaluator, path: Path, task: Task, data: Data) -> None:
        self._evaluator, self._path = evaluator, path
        self._place = {"task": task.fingerprint(), "data": data.digest}
        self._answers: list[tuple[Trial, Evaluation]] = []
        self.workers = evaluator.workers
        if path.exists() and not path.is_file():
            raise RunError(f"{path}: is no file; expected one, or the name of one to make.")
        with ExitStack() as on_error:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file = on_error.enter_context(path.open("a+", encoding="utf-8"))
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._recorded = self._read()
            except BlockingIOError:
                raise RunError(
                    f"{path}: another process is recording into it; expected a file of its own "
                    "for each."
                ) from None
            except (OSError, UnicodeDecodeError) as error:
                raise self._unusable(error) from None
            on_error.pop_all()

    @property
    def mechanisms(self) -> list[str]:
        """Keys of the mechanisms with a successful training in the file, in its order."""
        return list(dict.fromkeys(key for key, _ in self._recorded))

    @property
    def on_incident(self) -> Callable[[Incident], None]:
        """The function that the wrapped evaluator calls with each incident of a worker."""
        return self._evaluator.on_incident

    @on_incident.setter
    def on_incident(self, on_incident: Callable[[Incident], None]) -> None:
        self._evaluator.on_incident = on_incident

    def calibrate(self) -> Mapping[str, Any]:
        """See `Evaluator`."""
        return self._evaluator.calibrate()

    def submit(self, trials: Sequence[Trial]) -> None:
        """Submit those trials to the wrapped evaluator that the file does not contain."""
        rest = []
        for trial in trials:
            evaluation = self._recorded.get((trial.key, trial.seed))
            if evaluation is None:
                rest.append(trial)
            else:
                self._answers.append((trial, evaluation))
        self._evaluator.submit(rest)

    def wait(self) -> list[tuple[Trial, Evaluation]]:
        """Return finished trials with their evaluations, first all that the file contains.

        Raises:
            RunError: the file can no longer be written.
        """
        if self._answers:
            answers, self._answers = self._answers, []
            return answers
        answers = self._evaluator.wait()
        for trial, evaluation in answers:
            self._append(trial, evaluation)
        return answers

    def close(self) -> None:
        """Close the file. The wrapped evaluator stays open."""
        with suppress(OSError):  # the error was reported when the line was written
            self._file.close()

    def _append(self, trial: Trial, evaluation: Evaluation) -> None:
        kind = "genome" if isinstance(trial.mechanism, Genome) else "module"
        entry: dict[str, Any] = {"mechanism": trial.key, **self._place}
        entry |= {kind: trial.mechanism.to_dict(), "evaluation": evaluation.to_dict()}
        try:
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._unusable(error) from None
        if not is_retried(evaluation, retry_failed=True):
            self._recorded[trial.key, trial.seed] = evaluation

    def _read(self) -> dict[tuple[str, int], Evaluation]:
        """Return the evaluations of this task and data that did not fail, by trial key and seed.

        If a process was killed while it wrote the last line, that line is removed from the file.
        """
        evaluations = {}
        self._file.seek(0)
        text = self._file.read()
        lines = text.splitlines()
        *_, last = lines or [""]
        is_torn = not text.endswith("\n") and last[: len(_BEGINNING)] == _BEGINNING[: len(last)]
        for number, line in enumerate(lines[:-1] if is_torn else lines, 1):
            entry, evaluation = self._entry(line, number)
            is_same_task = all(entry.get(name) == value for name, value in self._place.items())
            if is_same_task and not is_retried(evaluation, retry_failed=True):
                evaluations[entry["mechanism"], evaluation.seed] = evaluation
        if is_torn:
            self._file.truncate(len(text[: text.rfind("\n") + 1].encode()))
        return evaluations

    def _entry(self, line: str, number: int) -> tuple[dict[str, Any], Evaluation]:
        try:
            entry = json.loads(line)
            if isinstance(entry["mechanism"], str):
                return entry, Evaluation.from_dict(entry["evaluation"])
        except (ValueError, TypeError, KeyError, RecursionError, RunError):
            pass
        raise RunError(
            f"{self._path}, line {number}: holds no training; expected a file that "
            "`nas evaluate --record` wrote."
        )

    def _unusable(self, error: Exception) -> RunError:
        return RunError(f"{self._path}: cannot be read or written ({error}).")
