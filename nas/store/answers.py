"""Answers of ``nas explain`` and ``nas benchmark`` on a run's mechanisms, kept in its folder.

Each is the JSON that the command prints. The same question asked again replaces its answer.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from nas.common.errors import RunError
from nas.store.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

FOLDER: Final = "answers"
Kind: TypeAlias = Literal["explain", "benchmark"]


def keep_answer(run: Path, kind: Kind, question: Sequence[str], answer: Mapping[str, Any]) -> Path:
    """Keep an answer.

    Args:
        question: what the file is named by: digests of mechanisms, fingerprints of tasks.

    Raises:
        RunError: it cannot be written.
    """
    name = hashlib.sha256("\n".join(question).encode()).hexdigest()[:16]
    path = run / FOLDER / f"{kind}-{name}.json"
    text = json.dumps(answer, indent=1, ensure_ascii=False, allow_nan=False)
    try:
        path.parent.mkdir(exist_ok=True)
        write_whole(path, f"{text}\n".encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise RunError(
            f"{path}: the answer cannot be kept for the run's report ({error.strerror})."
        ) from error
    return path


def read_answers(run: Path, kind: Kind) -> tuple[tuple[Path, dict[str, Any]], ...]:
    """All answers of a kind that a run's folder keeps, with their files.

    Raises:
        RunError: a file cannot be read, or is no JSON object.
    """
    found = []
    for path in sorted((run / FOLDER).glob(f"{kind}-*.json")):
        try:
            answer = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise damaged(path, kind) from error
        if not isinstance(answer, dict):
            raise damaged(path, kind)
        found.append((path, answer))
    return tuple(found)


def damaged(path: Path, kind: Kind) -> RunError:
    """What is said of a file that holds no such answer."""
    return RunError(
        f"{path}: holds no answer of `nas {kind}`; remove it, and run the command again."
    )
