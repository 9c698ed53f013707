"""The Ray cluster: join it or start it, and list its machines."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import threading
from pathlib import Path
from typing import Any, Final

import ray

from nas.common.errors import DeviceError
from nas.evaluation import ray_worker
from nas.evaluation.execution import Execution, Machine, allocate, mps_runs
from nas.training.hardware import usable_gpus

_CONNECT_SECONDS: Final = 2.5
_IF_ABSENT: Final = (
    "Expected the host:port of a running cluster's head node, which `ray start --head` prints."
)
_IF_REFUSED: Final = (
    "It asks for a token: set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN if ~/.ray/auth_token does "
    "not hold the cluster's."
)


def machines() -> list[Machine]:
    """Return the resources of the machines of the cluster."""
    here = ray.get_runtime_context().get_node_id()
    return [
        Machine(
            int(node["Resources"].get("CPU", 0)),
            int(node["Resources"].get("GPU", 0)),
            node["NodeID"],
            has_mps=node["NodeID"] == here and mps_runs(),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]


class Connection:
    """The connection of this process to a Ray cluster, which is made here unless there is one.

    ``is_local``: this connection started the cluster, on this machine.

    Raises:
        DeviceError: the cluster cannot be reached or has too few cores or GPUs, or this process is
            connected to a cluster already and an address is given.
    """

    def __init__(self, execution: Execution) -> None:
        address = execution.ray_address
        self._is_open = address is not None or not ray.is_initialized()
        self.is_local = self._is_open and address is None
        self._session: Path | None = None
        if self.is_local:
            self._session = _start(execution)
        elif address is not None:
            _join(address)

    def close(self, *, keeps_logs: bool = False) -> None:
        """Disconnect, and end the cluster on this machine; its logs are left if ``keeps_logs``."""
        if not self._is_open:
            return
        self._is_open = False
        ray.shutdown()
        if self._session is not None and not keeps_logs:
            shutil.rmtree(self._session, ignore_errors=True)


def _start(execution: Execution) -> Path:
    """Start a cluster on this machine; return Ray's folder with its logs and sockets."""
    cores = os.cpu_count() or 1
    gpus = 0 if execution.gpus_per_worker == 0 else usable_gpus()
    allocate(execution, [Machine(cores, gpus)])  # Ray itself accepts any number of cores
    num_cpus = min(execution.most or execution.fewest or cores, cores)
    try:
        # "local" never joins a cluster that runs here or that RAY_ADDRESS names.
        context = _init("local", num_cpus=num_cpus, num_gpus=gpus, include_dashboard=False)
        return Path(context.address_info["session_dir"])
    except Exception as error:
        raise DeviceError(
            f"Ray could not start on this machine: {gist(error)}. Train without it by "
            "--backend local."
        ) from error


def _join(address: str) -> None:
    try:
        _probe(address)
        # Workers train with the driver's copy of this package and of plug-ins.
        modules = [ray_worker.PACKAGE, *ray_worker.sources(ray_worker.plugins())]
        _init(address, runtime_env={"py_modules": list(map(str, modules))})
    except Exception as error:
        is_refused = "Authentication" in f"{error} {error.__cause__}"
        advice = _IF_REFUSED if is_refused else _IF_ABSENT
        raise DeviceError(
            f"no Ray cluster can be reached at {address!r}: {gist(error)}. {advice}"
        ) from error


def _probe(address: str) -> None:
    """Raise OSError if nothing listens at ``host:port``, for which Ray would wait two minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal():
        place = host.strip("[]"), int(port)
        socket.create_connection(place, timeout=_CONNECT_SECONDS).close()


def _init(address: str, **options: Any) -> Any:
    """Connect to Ray, and keep this process's handler of SIGTERM, which Ray replaces."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        return ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def gist(error: BaseException) -> str:
    """Return the decisive line of a Ray error: the worker's own error, or how its process ended."""
    text = str(getattr(error, "cause", None) or error)
    lines = (text.partition("Worker exit detail:")[2] or text).strip().splitlines() or [text]
    line = lines[-1 if "traceback" in text.lower() else 0]
    return line.partition(" Some common causes")[0].strip().rstrip(".") or type(error).__name__
