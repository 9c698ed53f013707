"""The command line: ``nas COMMAND``. Commands parse, call one library function, and print.

Importing this package loads neither torch nor any command.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import signal
import sys
import warnings
from typing import TYPE_CHECKING, Any, Final

from nas.common.errors import NasError, NasWarning

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import NoReturn

# Modules of commands, in the order of `nas --help`.
COMMANDS: Final = ("search", "compare", "runs", "tables", "genomes", "environment")
INTERRUPTED: Final = 130  # 128 and the signal's number, as shells have it


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command line and exit: 0 done, 1 the answer is no, 2 wrong usage or input."""
    from nas.cli.console import complain

    for module in COMMANDS:
        importlib.import_module(f"nas.cli.{module}")
    _tolerate_narrow_encodings()
    # What schedulers send before they end a job; the first process of a container has no default.
    before = signal.signal(signal.SIGTERM, _interrupt_once)
    try:
        try:
            with _told_warnings():
                status = _run(arguments)
        finally:
            sys.stdout.flush()
    except NasError as error:
        complain(str(error))
        status = error.exit_status
    except KeyboardInterrupt:
        complain("interrupted; what was recorded is kept.")
        status = INTERRUPTED
    except MemoryError as error:
        complain(f"there is not enough memory for this ({error}); ask for less.")
        status = 2
    except BrokenPipeError:
        _leave_pipe()
        status = 1
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF):
            raise
        _leave_pipe()
        complain(f"the output cannot be written ({error.strerror}).")
        status = 2
    finally:
        signal.signal(signal.SIGTERM, before)
    sys.exit(status)


def _interrupt_once(number: int, frame: Any) -> NoReturn:
    """Interrupt; `timeout` and schedulers send it twice, and the end should be told in peace."""
    signal.signal(number, signal.SIG_IGN)
    signal.default_int_handler(number, frame)


def _run(arguments: Sequence[str] | None) -> int:
    """The status of a command; what is said of wrong usage may repeat what was typed."""
    import typer

    from nas.cli import completion
    from nas.cli.app import app
    from nas.report.text import printable

    if completion.REQUEST in os.environ:
        completion.typer_completion().completion_init()

    usage_error: Any = typer.BadParameter.__base__  # typer exports its children alone
    try:
        status = app(args=arguments, prog_name="nas", standalone_mode=False) or 0
    except usage_error as error:
        said = io.StringIO()
        error.show(file=said)
        sys.stderr.write(printable(said.getvalue()))
        return int(error.exit_code)
    except typer.Abort:  # as older ones of typer call it
        status = INTERRUPTED
    if status == INTERRUPTED:  # typer's own: a search that was interrupted says more
        raise KeyboardInterrupt
    return status


@contextlib.contextmanager
def _told_warnings() -> Iterator[None]:
    """Our own warnings are sentences for people; others look as Python prints them."""
    from nas.cli.console import complain

    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(text: Warning | str, category: type[Warning], *place: Any) -> None:
            if issubclass(category, NasWarning):
                complain(str(text))
            else:
                others(text, category, *place)

        warnings.simplefilter("always", NasWarning)
        warnings.showwarning = show  # type: ignore[assignment]
        yield


def _tolerate_narrow_encodings() -> None:
    """A formula must not fail where the terminal's encoding lacks its signs."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError, ValueError):
                stream.reconfigure(errors="replace")


def _leave_pipe() -> None:
    """Whoever read our output has gone; the interpreter's last flush must not complain."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
