"""Train on Ray: each worker is an actor in a process of its own, on this machine or a cluster.

This module joins or starts a cluster, starts, calls and ends the actors, and finds the cause of
each lost actor. Ray places the actors and stores the data once on each machine. An actor for which
there is no room waits, so that the cluster may grow and shrink.
https://docs.ray.io/en/latest/ray-core/actors.html
"""

from __future__ import annotations

import os

# Ray reads these variables on import; a user's values take precedence. Niceness: with Ray's default
# of 15, workers would starve on a busy machine. Dedup: Ray prints lost workers to standard output,
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
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Any, Final

import ray
import ray.exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from nas.common.errors import DeviceError, NasError
from nas.evaluation import ray_worker
from nas.evaluation.dispatch import Dispatcher
from nas.evaluation.execution import Execution, Machine, WorkerResources, allocate
from nas.evaluation.pool import Cause, WorkerLostError, WorkerRefusedError
from nas.evaluation.ray_worker import GpuUnusableError, Identity, UnfitError, Worker
from nas.evaluation.trainer import Train, budget_of, train_candidate
from nas.evaluation.trial import Trial
from nas.tasks import Data, Task
from nas.training.hardware import usable_gpus

_PROBE_SECONDS: Final = 2.0  # time between two checks of the cluster's head and this machine's Ray
_CONNECT_SECONDS: Final = 2.5
_HEAD_SECONDS: Final = 30.0  # longest time without the head; after 60 s Ray ends the process
_THREADS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
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
        task, data: the task and data of all trials, which are put into Ray's object store once.
        execution: options of the workers. If its ``ray_address`` is None, the evaluator uses the
            cluster that this process is connected to, or else starts a cluster on this machine.
        grace: seconds beyond the time limit after which a worker that has not answered is ended.
        train: training function with the arguments of `train_candidate`.

    Raises:
        DeviceError: the cluster cannot be reached, or has too few cores or GPUs.
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
            resources = allocate(execution, _machines())
            if self._is_our_connection and execution.ray_address is None:
                # A cluster of one machine does not grow.
                most = 0 if resources[0].gpus else min(most, sum(m.cores for m in _machines()))
            super().__init__(
                ActorPool(resources, ray.put((task, train, limit)), ray.put(data)),
                max(len(resources), most),
                budget_of(task, data),
                patience=math.inf if limit is None else limit + grace,
                start_seconds=execution.start_seconds,
            )
        except BaseException:
            self._disconnect()
            raise

    def close(self) -> None:
        """End the workers and release the data.

        If this evaluator connected to the cluster, it disconnects; if it started the cluster, the
        cluster ends.
        """
        if not self._is_closed:
            super().close()
            del self._pool
            self._disconnect()

    def _disconnect(self) -> None:
        if self._is_our_connection:
            self._is_our_connection = False
            ray.shutdown()


@dataclass(eq=False)
class _Handle:
    """An actor, its resources, and Ray's id of its machine (empty until the actor has started)."""

    actor: Any
    resources: WorkerResources
    node: str = ""


class ActorPool:
    """The `Pool` whose workers are Ray actors, which are processes on the machines of a cluster.

    Args:
        resources: cores and GPUs of each worker that starts at the beginning. Each later worker
            has the resources of the last of these workers, and starts on any machine.
        options: Ray reference to the tuple (task, training function, time limit).
        data: Ray reference to the data.
    """

    def __init__(self, resources: Sequence[WorkerResources], options: Any, data: Any) -> None:
        paths = [str(ray_worker.PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {"PYTHONPATH": os.pathsep.join(paths), **dict.fromkeys(_THREADS, "1")}
        self._actor_class = ray.remote(Worker)
        self._environment = {"env_vars": environment}
        self._unused, self._later = list(resources), replace(resources[-1], node="")
        self._arguments = ray_worker.identity(), ray_worker.plugins(), (options, data)
        self._done: SimpleQueue[Future[Any]] = SimpleQueue()
        self._lost_nodes: set[str] = set()
        self._refused_nodes: set[str] = set()
        # A ray:// client can connect only to its proxy.
        self._is_client = ray.util.client.ray.is_connected()
        context = ray.get_runtime_context()
        self._head_address, self._raylet_address = context.gcs_address, ""
        if not self._is_client:
            self._raylet_address = _raylet_address(_node(context.get_node_id()))
        self._head_checked = time.monotonic()
        self._head_lost_since: float | None = None

    def start(self) -> tuple[Any, Any]:
        """Create an actor, which Ray starts once there is room; return as `Pool.start` does."""
        resources = self._unused.pop(0) if self._unused else self._later
        options: dict[str, Any] = {"num_cpus": resources.cores, "num_gpus": resources.gpus}
        if resources.node and resources.node not in self._refused_nodes:
            # Another machine if this one has left the cluster.
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(
                resources.node, soft=True
            )
        actor = self._actor_class.options(runtime_env=self._environment, **options)
        handle = _Handle(actor.remote(), resources)
        return handle, self._expect(handle, handle.actor.prepare.remote(*self._arguments))

    def submit(self, worker: _Handle, trial: Trial | None) -> Any:
        """Call an actor to train ``trial`` or measure unit times; return as `Pool.submit` does."""
        actor = worker.actor
        call = actor.calibrate.remote() if trial is None else actor.evaluate.remote(trial)
        return self._expect(worker, call)

    def wait(self, timeout: float | None) -> Iterable[Any]:
        """Block until a call is answered, and return the references of all newly answered calls.

        After at most `_PROBE_SECONDS` no references are returned, so that the next call checks
        whether the cluster's head node and Ray's process on this machine still answer.

        Raises:
            DeviceError: the head node has not answered for `_HEAD_SECONDS`, or Ray's process on
                this machine, the raylet, has ended.
        """
        if not self._is_client:
            self._check_cluster()
        seconds = _PROBE_SECONDS if timeout is None else min(timeout, _PROBE_SECONDS)
        done = []
        with suppress(Empty):
            done.append(self._done.get(timeout=seconds))
            while True:
                done.append(self._done.get_nowait())
        return done

    def get(self, ref: Any) -> Any:
        """Return the answer to the call with the reference ``ref``; see `Pool.get`."""
        try:
            answer = ref.result()
        except ray.exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, UnfitError):
                self._refused_nodes.add(cause.node)
                nodes = [n for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU")]
                is_last = {n["NodeID"] for n in nodes} <= self._refused_nodes
                raise WorkerRefusedError(cause.text, is_last=is_last) from error
            if isinstance(cause, GpuUnusableError):
                raise WorkerLostError("gpu_unusable", "it can no longer use its GPU") from error
            if isinstance(cause, NasError):
                raise cause from None
            raise DeviceError(f"a Ray worker cannot work: {_gist(error)}.") from error
        except ray.exceptions.RayError as error:
            raise WorkerLostError(self._cause(error, ref.handle.node), _gist(error)) from error
        if not isinstance(answer, Identity):
            return answer
        ref.handle.node = answer.node
        return answer.name

    def kill(self, worker: _Handle) -> None:
        """End an actor's process, and keep its cores and GPUs for the next actor."""
        if worker.resources is not self._later:
            self._unused.insert(0, worker.resources)
        if not self._head_lost_since:  # Ray would wait for the head
            ray.kill(worker.actor)

    def _expect(self, handle: _Handle, call: Any) -> Any:
        future = call.future()
        future.handle = handle
        future.add_done_callback(self._done.put)
        return future

    def _cause(self, error: Exception, node: str) -> Cause:
        if isinstance(error, ray.exceptions.OutOfMemoryError):
            return "memory"
        if getattr(error, "preempted", False):
            return "preempted"
        return "node" if node and self._is_lost(node) else "process"

    def _is_lost(self, node: str) -> bool:
        """Return whether the machine with Ray's id ``node`` is no longer reachable.

        Ray's list of machines is about 15 s late, so this method also connects to the machine.
        """
        if self._head_lost_since:
            return True
        if node not in self._lost_nodes:
            entry = _node(node)
            if entry is None or not (self._is_client or _listens(_raylet_address(entry))):
                self._lost_nodes.add(node)
        return node in self._lost_nodes

    def _check_cluster(self) -> None:
        now = time.monotonic()
        if now - self._head_checked < _PROBE_SECONDS:
            return
        self._head_checked = now
        if _refuses(self._raylet_address):  # Ray ends this process about 13 s later
            raise DeviceError(
                "Ray's process on this machine (the raylet) has ended, by `ray stop` or because "
                "memory ran out: what was recorded is kept. `nas resume` continues a search, and "
                "the same command continues any other."
            )
        if _listens(self._head_address):
            self._head_lost_since = None
            return
        self._head_lost_since = self._head_lost_since or now
        if (seconds := now - self._head_lost_since) >= _HEAD_SECONDS:
            raise DeviceError(
                f"the head of the Ray cluster at {self._head_address} has not answered for "
                f"{seconds:.0f} s: the record is kept; resume once there is a head."
            )


def _node(node: str) -> Any:
    """Return Ray's entry of the machine with the id ``node``; None if it is not alive."""
    return next((n for n in ray.nodes() if n["NodeID"] == node and n["Alive"]), None)


def _raylet_address(entry: Any) -> str:
    return f"{entry['NodeManagerAddress']}:{entry['NodeManagerPort']}"


def _machines() -> list[Machine]:
    return [
        Machine(
            int(node["Resources"].get("CPU", 0)),
            int(node["Resources"].get("GPU", 0)),
            node["NodeID"],
        )
        for node in ray.nodes()
        if node["Alive"]
    ]


def _connect(execution: Execution) -> bool:
    """Connect this process to a Ray cluster; return False if it was already connected.

    Raises:
        DeviceError: the cluster cannot be reached or has too few cores or GPUs, or this process is
            connected to another cluster.
    """
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
        cores = os.cpu_count() or 1
        gpus = 0 if execution.gpus_per_worker == 0 else usable_gpus()
        allocate(execution, [Machine(cores, gpus)])  # Ray itself accepts any number of cores
        num_cpus = min(execution.most or execution.fewest or cores, cores)
        options |= {"num_cpus": num_cpus, "num_gpus": gpus, "include_dashboard": False}
    try:
        if address is not None:
            _probe(address)
            # Workers train with the driver's copy of this package and of plug-ins.
            modules = [ray_worker.PACKAGE, *ray_worker.sources(ray_worker.plugins())]
            options["runtime_env"] = {"py_modules": list(map(str, modules))}
        with _restored_sigterm():
            # "local" never joins a cluster that runs here or that RAY_ADDRESS names.
            ray.init(address or "local", **options)
    except Exception as error:
        if address is None:
            raise DeviceError(
                f"Ray could not start on this machine: {_gist(error)}. Train without it by "
                "--backend local."
            ) from error
        is_refused = "Authentication" in f"{error} {error.__cause__}"
        advice = _IF_REFUSED if is_refused else _IF_ABSENT
        raise DeviceError(
            f"no Ray cluster can be reached at {address!r}: {_gist(error)}. {advice}"
        ) from error
    return True


@contextmanager
def _restored_sigterm() -> Iterator[None]:
    """Run a block in which Ray replaces this process's handler of SIGTERM, and restore it.

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


def _probe(address: str) -> None:
    """Raise OSError if nothing listens at the address ``host:port``."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        address = host.strip("[]"), int(port)
        socket.create_connection(address, timeout=_CONNECT_SECONDS).close()


def _listens(address: str) -> bool:
    try:
        _probe(address)
    except OSError:
        return False
    return True


def _refuses(address: str) -> bool:
    """Return whether the machine at an address answers that nothing listens there."""
    try:
        _probe(address)
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def _gist(error: BaseException) -> str:
    """Return the decisive line of a Ray error: the worker's own error, or how its process ended."""
    text = str(getattr(error, "cause", None) or error)
    lines = (text.partition("Worker exit detail:")[2] or text).strip().splitlines() or [text]
    line = lines[-1 if "traceback" in text.lower() else 0]
    return line.partition(" Some common causes")[0].strip().rstrip(".") or type(error).__name__
