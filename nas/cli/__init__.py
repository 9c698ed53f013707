"""The command line ``nas COMMAND``. Commands parse options, call one library function, and print.

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
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import typer

from nas.cli.console import complain
from nas.common.errors import NasError, NasWarning
from nas.common.text import printable

# Modules of commands, in the order of `nas --help`.
COMMANDS: Final = ("search", "compare", "runs", "genomes", "lists")
INTERRUPTED: Final = 130  # 128 and the number of SIGINT
# Errors of a stream that is full, broken or closed.
_OUTPUT_ERRORS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command line and exit.

    The exit status is 0 after success, 1 if the answer is negative, such as an illegal genome, 2
    after wrong usage or input, and 130 after an interrupt.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - until the end
        elif isinstance(stream, io.TextIOWrapper):  # printing a formula must not fail in ASCII
            with contextlib.suppress(OSError, ValueError):
                stream.reconfigure(errors="replace")
    # Schedulers send SIGTERM before they end a job; in a container it is ignored by default.
    before = signal.signal(signal.SIGTERM, _interrupt_once)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", NasWarning)
            warnings.showwarning = _warning_printer(warnings.showwarning)
            status = _run(arguments)
        sys.stdout.flush()
    except NasError as error:
        complain(str(error))
        status = error.exit_status
    except KeyboardInterrupt:
        complain("interrupted; runs, judgements and --record keep the finished trainings.")
        status = INTERRUPTED
    except (MemoryError, RecursionError, ImportError) as error:  # of torch, if memory is limited
        complain(f"not enough memory or stack, or a package that cannot be imported ({error}).")
        status = 2
    except BrokenPipeError:
        _discard_output()
        status = 1
    except OSError as error:
        if error.errno not in _OUTPUT_ERRORS:
            raise
        _discard_output()
        complain(f"the output cannot be written ({error.strerror}).")
        status = 2
    finally:
        signal.signal(signal.SIGTERM, before)
    sys.exit(status)


def _interrupt_once(number: int, frame: Any) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)
    signal.default_int_handler(number, frame)


def _run(arguments: Sequence[str] | None) -> int:
    from nas.cli.app import app

    for module in COMMANDS:
        importlib.import_module(f"nas.cli.{module}")

    usage_error: Any = typer.BadParameter.__base__  # typer exports only its subclasses
    try:
        status = app(args=arguments, prog_name="nas", standalone_mode=False) or 0
    except usage_error as error:
        text = io.StringIO()
        error.show(file=text)
        sys.stderr.write(printable(text.getvalue()))
        return int(error.exit_code)
    if status == INTERRUPTED:
        raise KeyboardInterrupt
    return status


def _warning_printer(default: Any) -> Any:
    """Return a function that prints warnings of nas as sentences, and others by ``default``."""

    def show(text: Warning | str, category: type[Warning], *place: Any) -> None:
        if issubclass(category, NasWarning):
            complain(str(text))
        else:
            default(text, category, *place)

    return show


def _discard_output() -> None:
    # The interpreter's last flush must not fail.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
