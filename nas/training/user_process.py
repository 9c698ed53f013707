"""Call functions that execute a user's file, each call in a process of its own.

A helper process imports torch once, executes no user's file, and forks a process for each call. So
a file that replaces functions of torch, exits, closes descriptors, loops for ever or fills the
memory affects neither the caller nor later calls.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, Final, NoReturn

from nas.common.errors import NasError
from nas.common.text import first_line
from nas.training.hardware import is_out_of_memory

_SERVE: Final = "import sys, nas.training.user_process as p; p.serve(int(sys.argv[1]))"


class ProcessEnded(Exception):  # noqa: N818 - an outcome, not a fault
    """Raised if a call's process raised an exception, ended, or exceeded its time limit.

    ``reason`` is "time_limit", "out_of_memory" or "error".
    """

    def __init__(self, text: str, reason: Any = "error") -> None:
        super().__init__(text)
        self.reason = reason


def call_in_process(function: Callable[..., Any], *arguments: Any, time_limit: float | None) -> Any:
    """Call a function of a module in a new process, and return what it returns.

    A NasError of the function is raised again. ProcessEnded is raised if the function raised
    another exception, or if its process ended before, also after ``time_limit`` seconds.
    """
    helper, connection = _helper()
    try:
        connection.send((sys.path, time_limit))  # a plug-in may have added a folder
        connection.send_bytes(pickle.dumps((function, arguments)))
        answer = pickle.loads(connection.recv_bytes())  # noqa: S301 - from our own process
    except BaseException as error:  # an interrupt, or the helper was lost
        _end(helper)
        if isinstance(error, EOFError | OSError):
            raise ProcessEnded("the process that forks its process was lost") from None
        raise
    if isinstance(answer, NasError | ProcessEnded):
        raise answer
    return answer


@cache
def _helper() -> tuple[subprocess.Popen[bytes], Connection]:
    connection, theirs = Pipe()
    with theirs:
        helper = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-P", "-u", "-c", _SERVE, str(theirs.fileno())],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.DEVNULL,
            stdout=sys.__stderr__,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # the caller handles an interrupt
        )
    atexit.register(_end, helper)
    return helper, connection


def _end(helper: subprocess.Popen[bytes]) -> None:
    """End a helper with the process that it has forked; a later call starts another helper."""
    _helper.cache_clear()
    atexit.unregister(_end)
    with suppress(ProcessLookupError):
        os.killpg(helper.pid, signal.SIGKILL)
    helper.wait()


def serve(descriptor: int) -> None:
    """Answer the calls of another process until it closes the connection."""
    connection = Connection(descriptor)
    with suppress(EOFError, ConnectionError):  # the other process ended, maybe during a call
        while True:
            sys.path[:], time_limit = connection.recv()
            connection.send_bytes(_answer(connection, connection.recv_bytes(), time_limit))


def _answer(connection: Connection, request: bytes, time_limit: float | None) -> bytes:
    """Call a function in a forked process; return the pickled value, NasError or ProcessEnded."""
    ours, theirs = Pipe(duplex=False)
    if (pid := os.fork()) == 0:
        connection.close()
        _run(theirs, request)
    theirs.close()
    with ours:
        ready, answer = wait([ours, connection], time_limit), b""
        if ours in ready:
            with suppress(EOFError, OSError):
                answer = ours.recv_bytes()
    os.kill(pid, signal.SIGKILL)  # no effect on a process that is ending
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if answer:
        return answer
    if not ready:
        ended = ProcessEnded(f"no answer within {time_limit:g} s", "time_limit")
    elif code == -signal.SIGKILL:
        text = "its process was killed, as if memory ran out, or closed its descriptors"
        ended = ProcessEnded(text, "out_of_memory")
    else:
        how = f"by a signal ({signal.strsignal(-code)})" if code < 0 else f"with exit status {code}"
        ended = ProcessEnded(f"its process ended {how}")
    return pickle.dumps(ended)


def _run(connection: Connection, request: bytes) -> NoReturn:
    """Send the answer of a call, and end this process."""
    try:
        with suppress(OSError):  # if memory runs out, Linux ends this process first
            Path("/proc/self/oom_score_adj").write_text("1000")
        try:
            function, arguments = pickle.loads(request)  # noqa: S301 - from our own process
            answer = pickle.dumps(function(*arguments))
        except NasError as error:
            answer = pickle.dumps(error)
        except BaseException as error:
            reason = "out_of_memory" if is_out_of_memory(error) else "error"
            ended = ProcessEnded(f"{type(error).__name__}: {first_line(error)}", reason)
            answer = pickle.dumps(ended)
        connection.send_bytes(answer)
    finally:
        os._exit(0)
