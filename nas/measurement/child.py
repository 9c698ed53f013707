"""The process that passes run in: what does not fit ends an answer, or that process, not ours.

``MeasuringProcess`` is our end, ``serve`` the other; a question and its answer are a line of JSON
each. An allocation beyond the machine's free memory fails in the child as PyTorch's own error. If
the kernel runs short all the same, it ends the child first; another one takes its place.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import torch

from nas.errors import NasError
from nas.genome import Genome
from nas.measurement.passes import Case, milliseconds, peak_bytes

if TYPE_CHECKING:
    from types import TracebackType

Quantity = Literal["milliseconds", "peak_bytes"]

QUANTITIES: Final = {"milliseconds": milliseconds, "peak_bytes": peak_bytes}
SHARE_OF_FREE_MEMORY: Final = 0.9


class MeasuringProcess:
    """A child that measures, started when first asked; a context that ends it."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[str] | None = None

    def __enter__(self) -> MeasuringProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._child is not None:
            self._child.kill()
            self._end()

    def ask(self, quantity: Quantity, case: Case) -> float | None:
        """A quantity of a case; None if it does not fit into memory.

        Raises:
            NasError: the case cannot run; the child's message says why.
        """
        if self._child is None:
            self._child = _start()
        question = {**asdict(case), "genome": case.genome.to_dict(), "quantity": quantity}
        answer = _exchange(self._child, json.dumps(question))
        if answer is None:
            status = self._end()
            if status == -signal.SIGKILL:
                return None
            raise RuntimeError(f"the measuring process ended with status {status}")
        if "error" in answer:
            raise NasError(f"{case.tokens} tokens: {answer['error']}")
        value: float | None = answer["value"]
        return value

    def _end(self) -> int:
        child, self._child = self._child, None
        assert child is not None
        # A question that the child did not live to read is still in the pipe.
        with contextlib.suppress(BrokenPipeError), child:
            pass
        return child.wait()


def serve() -> None:
    """Answer each line of standard input on standard output, until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends at once and without words
    # Whatever else prints must not print between answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line))), file=answers, flush=True)


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    quantity = QUANTITIES[question.pop("quantity")]
    case = Case(**{**question, "genome": Genome.from_dict(question["genome"])})
    if case.device == "cpu":
        _limit_memory()
    try:
        return {"value": quantity(case)}
    except (NasError, ValueError) as error:
        return {"error": str(error)}
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return {"value": None}


def is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran short; torch's CPU allocator has no exception of its own."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


def _limit_memory() -> None:
    """Make an allocation fail that the machine has no free memory for, where Linux allows it."""
    if sys.platform != "linux":
        return
    Path("/proc/self/oom_score_adj").write_text("1000")
    free = int(SHARE_OF_FREE_MEMORY * _bytes("/proc/meminfo", "MemAvailable"))
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    limit = _bytes("/proc/self/status", "VmData") + free
    if most != resource.RLIM_INFINITY:
        limit = min(limit, most)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, most))


def _bytes(path: str, field: str) -> int:
    """A field of one of the kernel's tables, which count in KiB."""
    lines = Path(path).read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(f"{field}:")).split()[1])


def _start() -> subprocess.Popen[str]:
    """Start a child that finds this package where we found it."""
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "OMP_NUM_THREADS": "1",
        "KINETO_LOG_LEVEL": "99",  # the profiler announces each of its starts
    }
    return subprocess.Popen(  # noqa: S603 - this interpreter, and a word of ours
        [sys.executable, "-c", f"from {__name__} import serve; serve()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        encoding="utf-8",
    )


def _exchange(child: subprocess.Popen[str], question: str) -> dict[str, Any] | None:
    """The child's answer; None if it has ended."""
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdin.write(question + "\n")
        child.stdin.flush()
    except BrokenPipeError:
        return None
    line = child.stdout.readline()
    return json.loads(line) if line else None
