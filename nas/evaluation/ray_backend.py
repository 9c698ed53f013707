"""Train on Ray: each worker is an actor in a process of its own, on this machine or a cluster.

Ray places the actors and stores the data once on each machine. An actor for which there is no room
waits, so that the cluster may grow and shrink.
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
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

import ray
import ray.exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from nas.common.errors import DeviceError
from nas.common.registry import plugin_folders
from nas.evaluation import ray_worker
from nas.evaluation.dispatch import Cause, Dispatcher, WorkerLostError
from nas.evaluation.execution import Execution, Machine, WorkerResources, allocate, mps_runs
from nas.evaluation.trainer import Train, budget_of, train_candidate
from nas.evaluation.trial import Trial
from nas.tasks import Data, Task
from nas.training.hardware import usable_gpus

_MEASURING_SECONDS: Final = 600.0
_CONNECT_SECONDS: Final = 2.5
_IF_ABSENT: Final = (
    "Expected the host:port of a running cluster's head node, which `ray start --head` prints."
)
_IF_REFUSED: Final = (
    "It asks for a token: set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN if ~/.ray/auth_token does "
    "not hold the cluster's."
)
_THREADS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class RayEvaluator(Dispatcher):
    """An `Evaluator` whose workers are Ray actors; raises DeviceError as `make_evaluator`.

    If ``ray_address`` is None, the evaluator uses the cluster that this process is connected to, or
    else starts a cluster on this machine. A worker that has not answered ``grace`` seconds after
    the time limit is ended.
    """

    def __init__(
        self,
        task: Task,
        data: Data,
        execution: Execution,
        *,
        grace: float = 30.0,
        train: Train = train_candidate,
        target: tuple[Task, Data] | None = None,
    ) -> None:
        target_task, target_data = target or (task, data)
        tasks, loaded = (task, target_task), (data, target_data)
        limit, most = execution.time_limit, execution.most or 0
        address = execution.ray_address
        self._connects = address is not None or not ray.is_initialized()
        self._session: Path | None = None  # of a cluster that is started here
        if address is not None:
            _join(address)
        elif self._connects:
            self._session = _start(execution)
        try:
            machines = _machines()
            resources = allocate(execution, machines)
            if self._session is not None:  # a cluster of one machine does not grow
                most = 0 if resources[0].gpus else min(most, sum(m.cores for m in machines))
            resources += [replace(resources[-1], node="")] * (most - len(resources))
            super().__init__(
                ActorPool(ray.put((tasks, train, limit)), ray.put(loaded)),
                resources,
                (budget_of(task, data), budget_of(target_task, target_data)),
                patience=math.inf if limit is None else limit + grace,
                start_seconds=execution.start_seconds,
            )
        except BaseException:
            self._disconnect()
            raise

    def measure(self, function: Callable[[str], Any]) -> Any:
        """See `Evaluator`. DeviceError: no worker starts, or none answers within ten minutes."""
        call = self.ready_worker().actor.measure.remote(function)
        try:
            return ray.get(call, timeout=_MEASURING_SECONDS)
        except ray.exceptions.RayError as error:
            raise DeviceError(f"a worker could not measure times: {_gist(error)}.") from error

    def close(self) -> None:
        """End the workers, and undo what this evaluator did to reach the cluster."""
        super().close()
        self._disconnect(keeps_logs=bool(self._fault))

    def _disconnect(self, *, keeps_logs: bool = False) -> None:
        if self._connects:
            self._connects = False
            ray.shutdown()
            if self._session is not None and not keeps_logs:
                shutil.rmtree(self._session, ignore_errors=True)


@dataclass(eq=False)
class _Process:
    actor: Any
    node: str = ""  # Ray's id of its machine, once the actor has started


class ActorPool:
    """Starts, calls and ends workers: Ray actors, which are processes on a cluster's machines.

    A worker answers one call at a time. A call returns a hashable reference at once; `wait` and
    `get` give the answer. ``options`` and ``data`` are Ray references to the tuple (tasks, training
    function, time limit), and to the data of both tasks: those of the task and of the target task.
    """

    def __init__(self, options: Any, data: Any) -> None:
        paths = [str(ray_worker.PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {"PYTHONPATH": os.pathsep.join(paths), **dict.fromkeys(_THREADS, "1")}
        self._actor_class = ray.remote(ray_worker.Worker)
        self._environment = {"env_vars": environment}
        plugins = ray_worker.plugins(), plugin_folders()
        self._arguments = ray_worker.torch_version(), plugins, (options, data)
        self._done: SimpleQueue[Future[Any]] = SimpleQueue()

    def start(self, resources: WorkerResources) -> tuple[Any, Any]:
        """Start a worker once there is room; return it, and a reference to its name."""
        options: dict[str, Any] = {"num_cpus": resources.cores, "num_gpus": resources.gpus}
        if resources.node:  # on another machine if this one has left the cluster
            affinity = NodeAffinitySchedulingStrategy(resources.node, soft=True)
            options["scheduling_strategy"] = affinity
        actor = self._actor_class.options(runtime_env=self._environment, **options)
        process = _Process(actor.remote())
        return process, self._expect(process, process.actor.prepare.remote(*self._arguments))

    def submit(self, worker: _Process, trial: Trial, *, is_alone: bool = False) -> Any:
        """Call a free worker to train a trial; the answer is that of `Worker.evaluate`."""
        return self._expect(worker, worker.actor.evaluate.remote(trial, is_alone))

    def wait(self, timeout: float | None) -> Sequence[Any]:
        """Block until a call is answered, or for so many seconds; return all new references."""
        done = []
        with suppress(Empty):
            done.append(self._done.get(timeout=timeout))
            while True:
                done.append(self._done.get_nowait())
        return done

    def get(self, ref: Any) -> Any:
        """Return the answer to a call; raise WorkerLostError if the worker was lost before.

        DeviceError is raised if the worker cannot train any candidate on its machine.
        """
        process = ref.process
        try:
            answer = ref.result()
        except ray.exceptions.RayError as error:
            if isinstance(cause := getattr(error, "cause", None), DeviceError):
                raise cause from None
            raise WorkerLostError(_cause(error, process.node), _gist(error)) from error
        if not process.node:
            answer, process.node = answer
        return answer

    def kill(self, worker: _Process) -> None:
        """End a worker at once; do nothing if it has ended."""
        ray.kill(worker.actor)

    def _expect(self, process: _Process, call: Any) -> Any:
        future = call.future()
        future.process = process
        future.add_done_callback(self._done.put)
        return future


def _cause(error: Exception, node: str) -> Cause:
    if isinstance(error, ray.exceptions.OutOfMemoryError):
        return "memory"
    # An actor is unavailable if its machine does not answer, which Ray's list shows later.
    is_unavailable = isinstance(error, ray.exceptions.ActorUnavailableError)
    is_listed = not node or any(n["NodeID"] == node and n["Alive"] for n in ray.nodes())
    if is_unavailable or getattr(error, "preempted", False) or not is_listed:
        return "node"
    return "process"


def _gist(error: BaseException) -> str:
    """Return the decisive line of a Ray error: the worker's own error, or how its process ended."""
    text = str(getattr(error, "cause", None) or error)
    lines = (text.partition("Worker exit detail:")[2] or text).strip().splitlines() or [text]
    line = lines[-1 if "traceback" in text.lower() else 0]
    return line.partition(" Some common causes")[0].strip().rstrip(".") or type(error).__name__


def _machines() -> list[Machine]:
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
            f"Ray could not start on this machine: {_gist(error)}. Train without it by "
            "--backend local."
        ) from error


def _join(address: str) -> None:
    host, colon, port = address.rpartition(":")
    try:
        if colon and port.isdecimal():  # Ray would wait two minutes where nothing listens
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
        # Workers train with the driver's copy of this package and of plug-ins.
        modules = [ray_worker.PACKAGE, *ray_worker.sources(ray_worker.plugins())]
        _init(address, runtime_env={"py_modules": list(map(str, modules))})
    except Exception as error:
        is_refused = "Authentication" in f"{error} {error.__cause__}"
        advice = _IF_REFUSED if is_refused else _IF_ABSENT
        raise DeviceError(
            f"no Ray cluster can be reached at {address!r}: {_gist(error)}. {advice}"
        ) from error


def _init(address: str, **options: Any) -> Any:
    """Connect to Ray, and keep this process's handler of SIGTERM, which Ray replaces."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        return ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
