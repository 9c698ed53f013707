"""Runs ``nas`` and ``python -c`` in forks of one process that has imported torch and nas once.

Each is a process of its own still, with its own folder, environment, output and exit status.

    python -m tests.docs.server     prints its socket; ends with its standard input
"""

from __future__ import annotations

import atexit
import json
import os
import select
import shutil
import socket
import sys
import tempfile
import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

import nas
from nas import cli

# Stands for `nas` and for `python -c`: it sends all that makes up a call, and takes its status.
CLIENT: Final = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect({path!r})
    socket.send_fds(asked, [b" "], [0, 1, 2])
    asked.sendall(json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode())
    asked.shutdown(socket.SHUT_WR)
    sys.exit(asked.recv(1)[0])
"""


def wait_for_call() -> tuple[str, list[str]]:
    """Listen until standard input ends; each call returns in a fork: a program, its arguments."""
    place = tempfile.mkdtemp(prefix="nas-")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{place}/calls")
        listening.listen()
        print(f"{place}/calls", flush=True)
        while listening in select.select([listening, 0], [], [])[0]:
            asked, _ = listening.accept()
            with asked:
                call = _forked(asked)
            if call is not None:
                return call
    shutil.rmtree(place)
    sys.exit()


def _forked(asked: socket.socket) -> tuple[str, list[str]] | None:
    """The call in its fork, None in the server; a fork between them tells the status."""
    if started := os.fork():
        os.waitpid(started, 0)
        return None
    if os.fork():  # the server waits for nobody, for one call may read what another prints
        os._exit(0)
    descriptors = socket.recv_fds(asked, 1, 3)[1]
    with asked.makefile() as call:
        (program, *arguments), folder, environment = json.load(call)
    if own := os.fork():
        asked.sendall(bytes([os.waitstatus_to_exitcode(os.waitpid(own, 0)[1]) % 256]))
        os._exit(0)
    for target, given in enumerate(descriptors):
        os.dup2(given, target)
        os.close(given)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    return program, arguments


def run(program: str, arguments: list[str]) -> int:
    """Do what was called for, and give its exit status."""
    try:
        if Path(program).name == "nas":
            cli.main(arguments)
        _, text, *others = arguments
        sys.argv, sys.path[0] = ["-c", *others], ""
        sys.modules["__main__"] = module = ModuleType("__main__")
        exec(compile(text, "<string>", "exec"), vars(module))
    except SystemExit as ended:
        return int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    for name in nas.__all__:
        getattr(nas, name)
    for name in cli.COMMANDS:
        import_module(f"nas.cli.{name}")
    status = run(*wait_for_call())
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)  # to take all modules apart takes a second


if __name__ == "__main__":
    main()
