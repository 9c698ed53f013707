"""Train on Ray: each worker is an actor in a process of its own, on this machine or a cluster.

Actors (`ray_actors`) live as long as the evaluator. Ray places them, keeps those pending for which
there is no room (so a cluster may grow and shrink), and stores the data once on each machine.
`dispatch` assigns trials and handles losses. This module joins or starts a cluster.
"""

from __future__ import annotations

import os

# Ray reads these on import; a user's own settings take precedence. Niceness: with Ray's default of
# 15, workers would starve on a busy machine. Dedup: Ray prints lost workers to standard output,
# which is for answers; incidents record them. Accelerators: Ray's announced default, without a
# warning.
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")
os.environ.setdefault("RAY_enable_metrics_collection", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_worker_niceness", "0")

import logging
import math
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import ray
import torch

from nas.common.errors import DeviceError
from nas.evaluation import handshake
from nas.evaluation.dispatch import Dispatcher
from nas.evaluation.execution import Execution, allocate
from nas.evaluation.ray_actors import PROBE_SECONDS, ActorPool, gist
from nas.evaluation.trainer import Train, budget_of, train_candidate
from nas.tasks import Data, Task

_IF_ABSENT: Final = (
    "Expected the host:port of a running cluster's head node, which `ray start --head` prints."
)
_IF_REFUSED: Final = (
    "It asks for a token: set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN if ~/.ray/auth_token does "
    "not hold the cluster's."
)


class RayEvaluator(Dispatcher):
    """An `Evaluator` whose workers are Ray actors.

    Args:
        data: put into the object store once.
        execution: without an address, the evaluator uses the cluster that this process is
            connected to, if any, else a new one on this machine.
        grace: seconds beyond the time limit after which a worker that did not answer is ended.
        train: the training function.

    Raises:
        DeviceError: the cluster cannot be reached, or lacks the cores or GPUs.
    """

    def __init__(
        self,
        task: Task,
        data: Data,
        execution: Execution,
        *,
        grace: float = 30.0,
        train: Train = train_candidate,
    ) -> None:
        limit, most = execution.time_limit, execution.most or 0
        self._is_our_connection = _connect(execution)
        try:
            offer = ray.cluster_resources()
            cores, gpus = int(offer.get("CPU", 0)), int(offer.get("GPU", 0))
            resources = allocate(execution, cores=cores, gpus=gpus)
            if self._is_our_connection and execution.ray_address is None:
                most = min(most, cores)  # a cluster of one machine does not grow
            super().__init__(
                ActorPool(resources, ray.put((task, train, resources, limit)), ray.put(data)),
                max(resources.workers, most),
                budget_of(task, data),
                patience=math.inf if limit is None else limit + grace,
                start_seconds=execution.start_seconds,
            )
        except BaseException:
            self._disconnect()
            raise

    def close(self) -> None:
        """End the workers, drop the data, and disconnect; a cluster started here ends."""
        if not self._is_closed:
            super().close()
            del self._pool
            self._disconnect()

    def _disconnect(self) -> None:
        if self._is_our_connection:
            self._is_our_connection = False
            ray.shutdown()


def _connect(execution: Execution) -> bool:
    """Connect this process to a cluster; return False if it was already connected."""
    address = execution.ray_address
    if ray.is_initialized():
        current = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", current):
            raise DeviceError(
                f"this process is connected to the Ray cluster at {current} already and cannot "
                f"join {address!r} too: call ray.shutdown() first."
            )
        return False
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        cores, gpus = os.cpu_count() or 1, torch.cuda.device_count()
        allocate(execution, cores=cores, gpus=gpus)  # Ray itself accepts any number of cores
        num_cpus = min(execution.most or execution.fewest or cores, cores)
        options |= {"num_cpus": num_cpus, "num_gpus": gpus, "include_dashboard": False}
    try:
        if address is not None:
            _probe(address)
            # Workers train with the driver's copy of this package and of plug-ins.
            modules = [handshake.PACKAGE, *handshake.sources(handshake.plugins())]
            options["runtime_env"] = {"py_modules": list(map(str, modules))}
        with _restored_sigterm():
            # "local" never joins a cluster that runs here or that RAY_ADDRESS names.
            ray.init(address or "local", **options)
    except Exception as error:
        raise DeviceError(_why_not_connected(address, error)) from error
    return True


@contextmanager
def _restored_sigterm() -> Iterator[None]:
    """Restore this process's handler of SIGTERM after the block; Ray's exits without a message.

    Raises:
        KeyboardInterrupt: SIGTERM came while Ray's handler was installed.
    """
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit:
        raise KeyboardInterrupt from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def _why_not_connected(address: str | None, error: Exception) -> str:
    if address is None:
        return (
            f"Ray could not start on this machine: {gist(error)}. Train without it by "
            "--backend local."
        )
    is_refused = "Authentication" in f"{error} {error.__cause__}"
    advice = _IF_REFUSED if is_refused else _IF_ABSENT
    return f"no Ray cluster can be reached at {address!r}: {gist(error)}. {advice}"


def _probe(address: str) -> None:
    """Raise OSError at once if nothing listens; Ray itself retries for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_SECONDS).close()
