"""What an input must not do: raise what is no error of ours, take long, grow, reach elsewhere.

Work is counted in processor seconds of this process, memory as the peak beyond where it began.
Files and programs are seen by an audit hook (PEP 578), which no code can get around unnoticed that
goes through Python; a mark that would be made by code in an input is looked for as well.
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
from pathlib import Path
from typing import Any, Final

from nas.common.errors import NasError
from nas.common.text import MAX_MESSAGE, printable

MAX_SECONDS: Final = 5.0
MAX_BYTES: Final = 500_000_000
FORBIDDEN: Final = (
    "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "pty.",
    "socket.connect", "socket.getaddrinfo", "socket.bind", "pickle.find_class", "code.__new__",
    "ctypes.dlopen/", "os.startfile", "webbrowser.", "ftplib.", "smtplib.", "urllib.Request",
)  # fmt: skip
# Their first arguments are paths that are changed.
CHANGING: Final = frozenset(
    {"os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.chmod", "os.chown", "os.utime",
     "shutil.rmtree", "os.mknod", "os.mkfifo"}
)  # fmt: skip
MOVING: Final = frozenset({"os.rename", "os.link", "os.symlink", "shutil.move", "shutil.copyfile"})
WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class TooLongError(BaseException):
    """Raised where an input has had its processor seconds."""


@dataclass
class Seen:
    """What one input did.

    Attributes:
        outcome: "taken" or "refused".
        faults: what it must not have done, a line each.
    """

    outcome: str = "taken"
    seconds: float = 0.0
    bytes: int = 0
    faults: list[str] = field(default_factory=list)


@dataclass
class _Hook:
    """The one hook of this process; it sees nothing while there is no folder."""

    folder: str | None = None
    faults: list[str] = field(default_factory=list)
    is_set: bool = False

    def set(self) -> None:
        if not self.is_set:
            sys.addaudithook(self.hear)
            self.is_set = True

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.folder is None or event == "object.__getattr__":
            return
        if event.startswith(FORBIDDEN):
            self._fault(f"{event} {arguments!r:.200}")
        elif event == "open":
            path, _, flags = arguments
            if flags & WRITING:
                self._written(event, path)
        elif event in CHANGING:
            self._written(event, arguments[0])
        elif event in MOVING:
            self._written(event, arguments[1])

    def _written(self, event: str, path: Any) -> None:
        if isinstance(path, int) or path in ("/dev/null", b"/dev/null"):
            return
        where = os.path.realpath(os.fsdecode(path))
        if not f"{where}/".startswith(f"{self.folder}/"):
            self._fault(f"{event} outside its folder: {where}")

    def _fault(self, text: str) -> None:
        folder, self.folder = self.folder, None  # what follows is of no interest
        self.faults.append(printable(text))
        self.folder = folder


HOOK: Final = _Hook()


def watched(work: Callable[[], object], folder: Path) -> Seen:
    """Do the work, which may write into ``folder`` alone, and say what it did."""
    seen = Seen()
    HOOK.set()
    before, began = _reset_peak(), time.process_time()
    HOOK.faults, HOOK.folder = [], os.path.realpath(folder)
    try:
        with _timed():
            work()
    except NasError as error:
        seen.outcome = "refused"
        text = str(error)
        if printable(text) != text or len(text) > MAX_MESSAGE:
            seen.faults.append(f"a message that is raw or long: {text!r:.200}")
    except TooLongError as error:
        seen.faults.append(f"takes longer than {MAX_SECONDS} s: {_where(error)}")
    except BaseException as error:
        seen.faults.append(f"{type(error).__name__}: {error!s:.200}: {_where(error)}")
    finally:
        HOOK.folder = None
    seen.seconds, seen.bytes = time.process_time() - began, _peak() - before
    if seen.bytes > MAX_BYTES:
        seen.faults.append(f"takes {seen.bytes / 1e6:.0f} MB")
    return replace_faults(seen, HOOK.faults)


def replace_faults(seen: Seen, more: list[str]) -> Seen:
    seen.faults = [*(printable(fault) for fault in seen.faults), *dict.fromkeys(more)]
    return seen


@contextlib.contextmanager
def _timed() -> Iterator[None]:
    def over(*_: object) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _where(error: BaseException) -> str:
    """The last places of a traceback, ours first of all."""
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
