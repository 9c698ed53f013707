"""A file of finished trainings, so that a long comparison can be stopped and gone on with.

One JSON line a training, written as it finishes. A training is known by mechanism (its digest at
the task's sizes), seed, task and images; failures are kept for people to read, and tried again.
"""

from __future__ import annotations

import fcntl
import json
import os
from typing import TYPE_CHECKING, Any, Final

from nas.errors import RunError
from nas.evaluation.choices import Choices
from nas.evaluation.record import Evaluation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from nas.evaluation.record import Evaluator, Job
    from nas.tasks import ImageData, Task


# How a line begins: what a killed process leaves of one can be told from somebody's own text.
_BEGINNING: Final = '{"mechanism": "'


class JournaledEvaluator:
    """An `Evaluator` that answers from a file what the file holds, and adds what it does not.

    Args:
        evaluator: trains what is not in the file.
        path: the file; it and its folder are made where they are not there. It belongs to one
            process at a time.

    Raises:
        RunError: the file holds something else, another process is writing it, or it cannot be
            written. A file that holds something else is left as it is.
    """

    def __init__(self, evaluator: Evaluator, path: Path, task: Task, data: ImageData) -> None:
        self._evaluator = evaluator
        self._path = path
        self._choices: Choices | None = None
        self._place = {"task": task.fingerprint(), "images": data.digest}
        if path.exists() and not path.is_file():
            raise RunError(f"{path}: is no file; expected one, or the name of one to make.")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+", encoding="utf-8")
        except OSError as error:
            raise self._unusable(error) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._known = self._read()
        except BlockingIOError:
            self._file.close()
            raise RunError(
                f"{path}: another process is recording into it; expected a file of its own for "
                "each."
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            self._file.close()
            raise self._unusable(error) from None
        except RunError:
            self._file.close()
            raise

    @property
    def workers(self) -> int:
        """How many trainings run at once."""
        return self._evaluator.workers

    def choose(self, seeds: int = 1) -> Choices:
        """As recorded with the newest training under this task, else measured."""
        return self._choices or self._evaluator.choose(seeds)

    def use(self, choices: Choices) -> None:
        """Compute so from now on."""
        self._choices = choices
        self._evaluator.use(choices)

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Evaluation]]:
        """Yield what is known, then the rest as it finishes, each one durable first.

        Raises:
            RunError: the file can no longer be written.
        """
        rest = []
        for job in jobs:
            known = self._known.get((job.key, job.seed))
            if known is None:
                rest.append(job)
            else:
                yield job, known
        for job, evaluation in self._evaluator.run(rest) if rest else ():
            self._append(job, evaluation)
            yield job, evaluation

    def close(self) -> None:
        """Let go of the workers and of the file."""
        self._file.close()
        self._evaluator.close()

    def _append(self, job: Job, evaluation: Evaluation) -> None:
        entry: dict[str, Any] = {"mechanism": job.key, **self._place}
        entry |= {"genome": job.genome.to_dict(), "evaluation": evaluation.to_dict()}
        entry |= {"choices": self._choices.to_dict()} if self._choices else {}
        try:
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._unusable(error) from None
        if evaluation.is_ok:
            self._known[job.key, job.seed] = evaluation

    def _read(self) -> dict[tuple[str, int], Evaluation]:
        """The good trainings under this task, on these images."""
        known: dict[tuple[str, int], Evaluation] = {}
        self._file.seek(0)
        text = self._file.read()
        lines = text.splitlines()
        # A process that was killed in the middle of a line: that training is lost, the rest is not.
        is_torn = bool(lines) and not text.endswith("\n") and lines[-1].startswith(_BEGINNING)
        for number, line in enumerate(lines[:-1] if is_torn else lines, 1):
            entry, evaluation = self._entry(line, number)
            is_here = all(entry.get(name) == value for name, value in self._place.items())
            if is_here and evaluation.is_ok:
                known[str(entry["mechanism"]), evaluation.seed] = evaluation
                self._choices = self._choices_of(entry)
        if is_torn:
            self._file.truncate(len(text[: text.rfind("\n") + 1].encode()))
        return known

    def _entry(self, line: str, number: int) -> tuple[dict[str, Any], Evaluation]:
        try:
            entry = json.loads(line)
            evaluation = Evaluation.from_dict(entry["evaluation"])
            assert "mechanism" in entry
            assert not evaluation.is_ok or "accuracy" in evaluation.objectives
            self._choices_of(entry)
        except (ValueError, TypeError, KeyError, AssertionError, RunError):
            raise RunError(
                f"{self._path}, line {number}: holds no training; expected a file that "
                "`nas evaluate --record` wrote."
            ) from None
        return entry, evaluation

    @staticmethod
    def _choices_of(entry: Mapping[str, Any]) -> Choices | None:
        """What a training was computed with; older files do not say."""
        return Choices.from_dict(entry["choices"]) if "choices" in entry else None

    def _unusable(self, error: Exception) -> RunError:
        return RunError(f"{self._path}: cannot be read or written ({error}).")
