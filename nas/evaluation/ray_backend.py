"""Train on Ray: one actor a worker, each in a process of its own, on this machine or a cluster.

The actors (`ray_actors`) live as long as the evaluator; the data lies in Ray's object store and all
workers of a machine read the same copy. `dispatch` says who trains what, and what is done about a
worker that hangs or is lost. Here is how a cluster is joined, or one started.
"""

from __future__ import annotations

import os

# Ray reads these when it is imported, so they come first; a person's own settings win. The first
# opts into Ray's announced default (a worker without GPUs keeps its environment), which ends the
# warning about it. The second keeps Ray's own messages about lost workers, which go to standard
# output, out of what we print: each becomes an evaluation that says what happened. The last gives
# workers of a cluster that is started here our own priority, not one lower by 15: they do the work,
# and would starve on a busy machine.
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
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import ray
import torch

from nas.common.errors import DeviceError
from nas.evaluation import handshake
from nas.evaluation.dispatch import Dispatcher
from nas.evaluation.execution import allocate
from nas.evaluation.ray_actors import PROBE_SECONDS, ActorPool, gist
from nas.evaluation.trainer import budget_of, train_candidate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nas.evaluation.execution import Execution
    from nas.evaluation.trainer import Train
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
        execution: what was asked for; without an address the evaluator uses the cluster that this
            process is connected to already, if any.
        grace: seconds beyond the time limit after which a worker that did not answer is ended.
        train: the training function.

    Raises:
        DeviceError: the cluster cannot be reached, or lacks what was asked for.
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
        limit = execution.time_limit
        self._is_our_connection = _connect(execution)
        try:
            offer = ray.cluster_resources()
            cores, gpus = int(offer.get("CPU", 0)), int(offer.get("GPU", 0))
            share = allocate(execution, cores=cores, gpus=gpus)
            is_alone = self._is_our_connection and execution.ray_address is None
            most = min(execution.most or 0, cores) if is_alone else execution.most or 0
            super().__init__(
                ActorPool(share, ray.put((task, train, share, limit)), ray.put(data)),
                max(share.workers, most),
                budget_of(task, data),
                patience=math.inf if limit is None else limit + grace,
                start_seconds=execution.start_seconds,
            )
        except BaseException:
            self._disconnect()
            raise

    def close(self) -> None:
        """End the workers, drop the data and leave the cluster, or end it if it is ours."""
        if not self._is_closed:
            super().close()
            del self._pool
            self._disconnect()

    def _disconnect(self) -> None:
        if self._is_our_connection:
            self._is_our_connection = False
            ray.shutdown()


def _connect(execution: Execution) -> bool:
    """Make sure that this process is connected to a cluster; say whether it was not before."""
    address = execution.ray_address
    if ray.is_initialized():
        found = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", found):
            raise DeviceError(
                f"this process is connected to the Ray cluster at {found} already and cannot join "
                f"{address!r} too: call ray.shutdown() first."
            )
        return False
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    gpus = torch.cuda.device_count()
    if address is None:  # Ray would believe any number of cores
        allocate(execution, cores=os.cpu_count() or 1, gpus=gpus)
    try:
        if address is None:
            # "local" never joins a cluster that happens to run here or that RAY_ADDRESS names.
            cores = min(execution.most or execution.fewest or math.inf, os.cpu_count() or 1)
            given = {"num_cpus": cores, "num_gpus": gpus}
            with _own_signals():
                ray.init("local", include_dashboard=False, **given, **quiet)
        else:
            _probe(address)
            # Our copy of this package and of plug-ins goes along: a worker anywhere trains with the
            # code that is to read its results.
            sent = [handshake.PACKAGE, *handshake.sources(handshake.plugins())]
            with _own_signals():
                ray.init(address, runtime_env={"py_modules": list(map(str, sent))}, **quiet)
    except Exception as error:
        raise DeviceError(_why_not_connected(address, error)) from error
    return True


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep what this process does on SIGTERM; Ray would end it without a word, or by a trace.

    Raises:
        KeyboardInterrupt: SIGTERM came while Ray's own handler was there already.
    """
    kept = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit:
        raise KeyboardInterrupt from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, kept)


def _why_not_connected(address: str | None, error: Exception) -> str:
    if address is None:
        return (
            f"Ray could not start on this machine: {gist(error)}. Train without it by "
            "--backend local."
        )
    is_refused = "Authentication" in f"{error} {error.__cause__}"
    help_ = _IF_REFUSED if is_refused else _IF_ABSENT
    return f"no Ray cluster can be reached at {address!r}: {gist(error)}. {help_}"


def _probe(address: str) -> None:
    """See whether anybody listens; Ray itself keeps trying, and talking, for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_SECONDS).close()
