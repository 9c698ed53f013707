"""Train on Ray: each worker is an actor in a process of its own, on this machine or a cluster.

This module starts, calls and ends the actors, and finds the cause of each lost actor. Ray places
the actors and stores the data once on each machine. An actor for which there is no room waits, so
that the cluster may grow and shrink. https://docs.ray.io/en/latest/ray-core/actors.html
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

import math
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Any, Final

import ray
import ray.exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from nas.common.errors import DeviceError, NasError
from nas.common.registry import plugin_folders
from nas.evaluation import ray_worker
from nas.evaluation.dispatch import Dispatcher
from nas.evaluation.execution import Execution, WorkerResources, allocate
from nas.evaluation.pool import Cause, WorkerLostError, WorkerRefusedError
from nas.evaluation.ray_cluster import Connection, gist, listens, machines, node_entry, refuses
from nas.evaluation.ray_worker import (
    CudaFaultError,
    GpuUnusableError,
    Identity,
    UnfitError,
    Worker,
)
from nas.evaluation.trainer import Train, budget_of, train_candidate
from nas.evaluation.trial import Trial
from nas.tasks import Data, Task

_PROBE_SECONDS: Final = 2.0  # time between two checks of the cluster's head and this machine's Ray
_HEAD_SECONDS: Final = 30.0  # longest time without the head; after 60 s Ray ends the process
_THREADS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class RayEvaluator(Dispatcher):
    """An `Evaluator` whose workers are Ray actors.

    Args:
        task, data: the task and data of trials, which are put into Ray's object store once.
        execution: options of the workers. If its ``ray_address`` is None, the evaluator uses the
            cluster that this process is connected to, or else starts a cluster on this machine.
        grace: seconds beyond the time limit after which a worker that has not answered is ended.
        train: training function with the arguments of `train_candidate`.
        target: the task and data of trials with ``Trial.is_target``.

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
        target: tuple[Task, Data] | None = None,
    ) -> None:
        target_task, target_data = target or (task, data)
        tasks, loaded = (task, target_task), (data, target_data)
        limit, most = execution.time_limit, execution.most or 0
        self._connection = Connection(execution)
        try:
            resources = allocate(execution, machines())
            if self._connection.is_local:  # a cluster of one machine does not grow
                most = 0 if resources[0].gpus else min(most, sum(m.cores for m in machines()))
            super().__init__(
                ActorPool(resources, ray.put((tasks, train, limit)), ray.put(loaded)),
                max(len(resources), most),
                (budget_of(task, data), budget_of(target_task, target_data)),
                patience=math.inf if limit is None else limit + grace,
                start_seconds=execution.start_seconds,
            )
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """End the workers and release the data.

        If this evaluator connected to the cluster, it disconnects; if it started the cluster, the
        cluster ends.
        """
        if not self._is_closed:
            super().close()
            del self._pool
            self._connection.close(keeps_logs=self._fault is not None)


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
        options: Ray reference to the tuple (tasks, training function, time limit). The tasks are
            the task and the target task, which is the same without a target.
        data: Ray reference to the data of both tasks.
    """

    def __init__(self, resources: Sequence[WorkerResources], options: Any, data: Any) -> None:
        paths = [str(ray_worker.PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {"PYTHONPATH": os.pathsep.join(paths), **dict.fromkeys(_THREADS, "1")}
        self._actor_class = ray.remote(Worker)
        self._environment = {"env_vars": environment}
        self._unused, self._later = list(resources), replace(resources[-1], node="")
        plugins = ray_worker.plugins(), plugin_folders()
        self._arguments = ray_worker.identity(), plugins, (options, data)
        self._done: SimpleQueue[Future[Any]] = SimpleQueue()
        self._lost_nodes: set[str] = set()
        self._refused_nodes: set[str] = set()
        # A ray:// client can connect only to its proxy.
        self._is_client = ray.util.client.ray.is_connected()
        context = ray.get_runtime_context()
        self._head_address, self._raylet_address = context.gcs_address, ""
        if not self._is_client:
            self._raylet_address = _address(node_entry(context.get_node_id()))
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

    def submit(self, worker: _Handle, trial: Trial | None, *, is_alone: bool = False) -> Any:
        """Call an actor to train ``trial`` or measure unit times; return as `Pool.submit` does."""
        actor = worker.actor
        if trial is None:
            return self._expect(worker, actor.calibrate.remote())
        return self._expect(worker, actor.evaluate.remote(trial, is_alone))

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
            if isinstance(cause, CudaFaultError):
                raise WorkerLostError("process", str(cause)) from error
            if isinstance(cause, NasError):
                raise cause from None
            raise DeviceError(f"a Ray worker cannot work: {gist(error)}.") from error
        except ray.exceptions.RayError as error:
            raise WorkerLostError(self._cause(error, ref.handle.node), gist(error)) from error
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
            entry = node_entry(node)
            if entry is None or not (self._is_client or listens(_address(entry))):
                self._lost_nodes.add(node)
        return node in self._lost_nodes

    def _check_cluster(self) -> None:
        now = time.monotonic()
        if now - self._head_checked < _PROBE_SECONDS:
            return
        self._head_checked = now
        if refuses(self._raylet_address):  # Ray ends this process about 13 s later
            raise DeviceError(
                "Ray's process on this machine (the raylet) has ended, by `ray stop` or because "
                "memory ran out: what was recorded is kept. `nas resume` continues a search, and "
                "the same command continues any other."
            )
        if listens(self._head_address):
            self._head_lost_since = None
            return
        self._head_lost_since = self._head_lost_since or now
        if (seconds := now - self._head_lost_since) >= _HEAD_SECONDS:
            raise DeviceError(
                f"the head of the Ray cluster at {self._head_address} has not answered for "
                f"{seconds:.0f} s: the record is kept; resume once there is a head."
            )


def _address(entry: Any) -> str:
    """Return the address of the raylet of a machine in Ray's list."""
    return f"{entry['NodeManagerAddress']}:{entry['NodeManagerPort']}"
