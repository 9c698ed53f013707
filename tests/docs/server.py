"""Run ``nas`` and ``python -c`` in forks of one process that has imported torch and nas once.

Each call runs in a separate process with the caller's folder, environment and output, and its exit
status is the caller's. A signal to the caller does not reach this process.

    python -m tests.docs.server     print the path of a socket; end with standard input
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

# Text of the program that replaces `nas` and `python -c`: it sends its arguments, folder,
# environment and open files to the socket, and ends with the exit status that it receives.
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
    """Accept calls until standard input ends; return in the fork of each call.

    Returns:
        Path of the called program, and its arguments.
    """
    folder = tempfile.mkdtemp(prefix="nas-")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{folder}/calls")
        server.listen()
        print(f"{folder}/calls", flush=True)
        while server in select.select([server, 0], [], [])[0]:
            connection, _ = server.accept()
            with connection:
                call = _forked(connection)
            if call is not None:
                return call
    shutil.rmtree(folder)
    sys.exit()


def _forked(connection: socket.socket) -> tuple[str, list[str]] | None:
    """Fork twice; return the call in the inner fork, and None in the server.

    The outer fork waits for the inner one and sends its exit status. The server does not wait,
    because one call may read what another one prints.
    """
    if started := os.fork():
        os.waitpid(started, 0)
        return None
    if os.fork():
        os._exit(0)
    descriptors = socket.recv_fds(connection, 1, 3)[1]
    with connection.makefile() as call:
        (program, *arguments), folder, environment = json.load(call)
    if child := os.fork():
        connection.sendall(bytes([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) % 256]))
        os._exit(0)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    return program, arguments


def run(program: str, arguments: list[str]) -> int:
    """Run ``nas``, or the text of ``python -c``; return the exit status."""
    try:
        if Path(program).name == "nas":
            cli.main(arguments)
        _, text, *others = arguments
        sys.argv, sys.path[0] = ["-c", *others], ""
        sys.modules["__main__"] = module = ModuleType("__main__")
        exec(compile(text, "<string>", "exec"), vars(module))
    except SystemExit as error:
        return int(error.code or 0)
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
    os._exit(status)  # a normal exit would take a second to free all modules


if __name__ == "__main__":
    main()
