"""Observe an input: unexpected errors, time, memory, writes elsewhere, started programs.

Time is processor time of this process; memory is the increase of the peak. An audit hook (PEP 578)
reports writes to files and started programs of all Python code.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, Final

from nas.common.errors import NasError
from nas.common.text import MAX_MESSAGE, printable

MAX_SECONDS: Final = 5.0
MAX_BYTES: Final = 500_000_000
MAX_WAIT_SECONDS: Final = 60.0  # by the clock, on a busy machine
FORBIDDEN: Final = (
    "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "pty.",
    "socket.connect", "socket.getaddrinfo", "socket.bind", "pickle.find_class", "code.__new__",
    "ctypes.dlopen/", "os.startfile", "webbrowser.", "ftplib.", "smtplib.", "urllib.Request",
)  # fmt: skip
# Audit events whose first argument is a changed path.
CHANGING: Final = frozenset(
    {"os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.chmod", "os.chown", "os.utime",
     "shutil.rmtree", "os.mknod", "os.mkfifo"}
)  # fmt: skip
MOVING: Final = frozenset({"os.rename", "os.link", "os.symlink", "shutil.move", "shutil.copyfile"})
REPLACING: Final = frozenset({"os.remove", "os.rmdir", "os.rename", "os.link", "os.symlink"})
WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class TooLongError(BaseException):
    """Raised when an input exceeds its processor time."""


@dataclass
class Observation:
    """Observed effects of one input.

    Attributes:
        outcome: "accepted" or "refused".
        seconds: processor time, in seconds.
        bytes: increase of peak memory, in bytes.
        faults: violations of the limits, one line each.
    """

    outcome: str = "accepted"
    seconds: float = 0.0
    bytes: int = 0
    faults: list[str] = field(default_factory=list)


@dataclass
class _Hook:
    """The audit hook of this process, inactive while ``folder`` is None."""

    folder: str | None = None
    faults: list[str] = field(default_factory=list)
    is_set: bool = False

    def set(self) -> None:
        if not self.is_set:
            sys.addaudithook(self.on_event)
            self.is_set = True

    def on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.folder is None or event == "object.__getattr__":
            return
        if event.startswith(FORBIDDEN):
            self._fault(f"{event} {arguments!r:.200}")
        elif event == "open":
            path, _, flags = arguments
            if flags & WRITING:
                self._check_path(event, path, follows=not flags & (os.O_NOFOLLOW | os.O_EXCL))
        elif event in CHANGING:
            self._check_path(event, arguments[0], follows=event not in REPLACING)
        elif event in MOVING:
            self._check_path(event, arguments[1], follows=event not in REPLACING)

    def _check_path(self, event: str, path: Any, *, follows: bool) -> None:
        if isinstance(path, int) or path in ("/dev/null", b"/dev/null"):
            return
        name = os.fsdecode(path)
        where = os.path.realpath(name if follows else os.path.dirname(name))
        if not f"{where}/".startswith(f"{self.folder}/"):
            self._fault(f"{event} outside its folder: {where}")

    def _fault(self, text: str) -> None:
        folder, self.folder = self.folder, None  # the hook must not report its own actions
        self.faults.append(printable(text))
        self.folder = folder


HOOK: Final = _Hook()


def observe(work: Callable[[], object], folder: Path) -> Observation:
    """Run ``work``, which may write only into ``folder``, and return its effects."""
    observation = Observation()
    HOOK.set()
    before, start = _reset_peak(), time.process_time()
    HOOK.faults, HOOK.folder = [], os.path.realpath(folder)
    try:
        with _timed():
            work()
    except NasError as error:
        observation.outcome = "refused"
        text = str(error)
        if printable(text) != text or len(text) > MAX_MESSAGE:
            observation.faults.append(f"an unprintable or long message: {text!r:.200}")
    except TooLongError as error:
        observation.faults.append(f"takes longer than {MAX_SECONDS} s: {_where(error)}")
    except BaseException as error:
        observation.faults.append(f"{type(error).__name__}: {error!s:.200}: {_where(error)}")
    finally:
        HOOK.folder = None
    observation.seconds, observation.bytes = time.process_time() - start, _peak() - before
    if observation.bytes > MAX_BYTES:
        observation.faults.append(f"takes {observation.bytes / 1e6:.0f} MB")
    own = [printable(fault) for fault in observation.faults]
    observation.faults = [*own, *dict.fromkeys(HOOK.faults)]
    return observation


def observe_apart(work: Callable[[], object], folder: Path) -> Observation:
    """Observe ``work`` in a forked process, which may block for ever or give up its user."""
    receiver, sender = Pipe(duplex=False)
    process = os.fork()
    if process == 0:
        with contextlib.suppress(BaseException):
            sender.send(observe(work, folder))
        os._exit(0)
    sender.close()
    try:
        if receiver.poll(MAX_WAIT_SECONDS):
            return receiver.recv()
        return Observation(faults=[f"does not end within {MAX_WAIT_SECONDS} s"])
    except EOFError:
        return Observation(faults=["ends its process"])
    finally:
        receiver.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


@contextlib.contextmanager
def _timed() -> Iterator[None]:
    def on_alarm(*_: object) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGPROF, on_alarm)
    signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _where(error: BaseException) -> str:
    """Return the last five frames of a traceback, of this package if there are any."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/nas/" in frame.filename] or frames
    return " < ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in ours[:-6:-1])


def _reset_peak() -> int:
    Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")
