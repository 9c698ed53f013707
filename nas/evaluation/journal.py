"""A file of finished trainings, so that a long comparison can be stopped and gone on with.

One JSON line a training, written as it finishes. A training is known by mechanism (its digest at
the task's sizes), seed, task and images; failures are kept for people to read, and tried again.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from nas.errors import RunError
from nas.evaluation.record import Evaluation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from nas.evaluation.record import Evaluator, Job
    from nas.tasks import ImageData, Task


class JournaledEvaluator:
    """An `Evaluator` that answers from a file what the file holds, and adds what it does not.

    Args:
        evaluator: trains what is not in the file.
        path: the file; it and its folder are made where they are not there.

    Raises:
        RunError: the file holds something else.
    """

    def __init__(self, evaluator: Evaluator, path: Path, task: Task, data: ImageData) -> None:
        self._evaluator = evaluator
        self._path = path
        self._place = {"task": task.fingerprint(), "images": data.digest}
        self._known = self._read()

    @property
    def workers(self) -> int:
        """How many trainings run at once."""
        return self._evaluator.workers

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Evaluation]]:
        """Yield what is known, then the rest as it finishes, each one durable first."""
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
        """Let go of the workers."""
        self._evaluator.close()

    def _append(self, job: Job, evaluation: Evaluation) -> None:
        entry: dict[str, Any] = {"mechanism": job.key, **self._place}
        entry |= {"genome": job.genome.to_dict(), "evaluation": evaluation.to_dict()}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if evaluation.is_ok:
            self._known[job.key, job.seed] = evaluation

    def _read(self) -> dict[tuple[str, int], Evaluation]:
        """The good trainings under this task, on these images."""
        known: dict[tuple[str, int], Evaluation] = {}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            text = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
            if text and not text.endswith("\n"):
                # A process that was killed in the middle of a line: that training is lost.
                text = text[: text.rfind("\n") + 1]
                self._path.write_text(text, encoding="utf-8")
            for number, line in enumerate(text.splitlines(), 1):
                entry = self._entry(line, number)
                evaluation = Evaluation.from_dict(entry["evaluation"])
                is_here = all(entry.get(name) == value for name, value in self._place.items())
                if is_here and evaluation.is_ok:
                    known[str(entry["mechanism"]), evaluation.seed] = evaluation
        except (OSError, UnicodeDecodeError) as error:
            raise RunError(f"{self._path}: cannot be read or written ({error}).") from None
        return known

    def _entry(self, line: str, number: int) -> dict[str, Any]:
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        if not isinstance(entry, dict) or not {"mechanism", "evaluation"} <= entry.keys():
            raise RunError(
                f"{self._path}, line {number}: holds no training; expected a file that "
                "`nas evaluate --record` wrote."
            )
        return entry
