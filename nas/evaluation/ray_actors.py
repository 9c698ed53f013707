"""Ray's implementation of `pool.Pool`: workers are actors, and each loss has a cause.

A worker first reports its identity (`handshake`); a worker that cannot train is refused, and the
refusal names its machine. https://docs.ray.io/en/latest/ray-core/actors.html
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import Any, Final

import ray
import ray.exceptions
import torch

from nas.common.errors import DeviceError, NasError
from nas.evaluation import handshake
from nas.evaluation.execution import WorkerResources
from nas.evaluation.handshake import Identity
from nas.evaluation.pool import Cause, WorkerLostError, WorkerRefusedError
from nas.evaluation.trainer import calibrate_for, train_guarded
from nas.evaluation.trial import Evaluation, Trial
from nas.training.cuda_graphs import CudaGraphs

PROBE_SECONDS: Final = 5.0
_CONTEXT_BYTES: Final = 2**29  # GPU memory of each process besides its tensors
_MAX_BROKEN_GRAPHS: Final = 4  # failed captures keep their memory
_HEAD_SECONDS: Final = 30.0  # longest time without the head; after 60 s Ray ends the process
_THREADS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(eq=False)
class _Handle:
    """An actor, and the id of its node; empty until it has started."""

    actor: Any
    node: str = ""


class ActorPool:
    """Ray's `pool.Pool`. A reference is a future that queues itself when it is done.

    Args:
        resources: of each worker, besides one core and one thread.
        options, data: arguments of `Worker.prepare`, as references into the object store.
    """

    def __init__(self, resources: WorkerResources, options: Any, data: Any) -> None:
        paths = [str(handshake.PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {"PYTHONPATH": os.pathsep.join(paths), **dict.fromkeys(_THREADS, "1")}
        self._actor_class = ray.remote(Worker).options(
            num_cpus=1, num_gpus=resources.gpus, runtime_env={"env_vars": environment}
        )
        self._arguments = handshake.identity(), handshake.plugins(), (options, data)
        self._done: SimpleQueue[Future[Any]] = SimpleQueue()
        self._lost_nodes: set[str] = set()
        self._refused_nodes: set[str] = set()
        # A ray:// client can connect only to its proxy.
        self._is_client = ray.util.client.ray.is_connected()
        self._head_address = ray.get_runtime_context().gcs_address
        self._head_checked = time.monotonic()
        self._head_lost_since: float | None = None

    def start(self) -> tuple[Any, Any]:
        """Create an actor; Ray keeps it pending until there is room."""
        handle = _Handle(self._actor_class.remote())
        return handle, self._expect(handle, handle.actor.prepare.remote(*self._arguments))

    def submit(self, worker: _Handle, trial: Trial | None) -> Any:
        """Call an actor."""
        actor = worker.actor
        call = actor.calibrate.remote() if trial is None else actor.evaluate.remote(trial)
        return self._expect(worker, call)

    def wait(self, timeout: float | None) -> Iterable[Any]:
        """Finished references; empty after `PROBE_SECONDS`, so that the head is checked again.

        Raises:
            DeviceError: the head of the cluster has not answered for `_HEAD_SECONDS`.
        """
        if not self._is_client:
            self._check_head()
        seconds = PROBE_SECONDS if timeout is None else min(timeout, PROBE_SECONDS)
        done = []
        with suppress(Empty):
            done.append(self._done.get(timeout=seconds))
            while True:
                done.append(self._done.get_nowait())
        return done

    def get(self, ref: Any) -> Any:
        """The answer, or the name of a worker that has started; see `Pool.get`."""
        try:
            answer = ref.result()
        except ray.exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, _UnfitError):
                self._refused_nodes.add(cause.node)
                nodes = [n for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU")]
                is_last = {n["NodeID"] for n in nodes} <= self._refused_nodes
                raise WorkerRefusedError(cause.text, is_last=is_last) from error
            if isinstance(cause, _GpuUnusableError):
                raise WorkerLostError("gpu_unusable", "it can no longer use its GPU") from error
            if isinstance(cause, NasError):
                raise cause from None
            raise DeviceError(f"a Ray worker cannot work: {gist(error)}.") from error
        except ray.exceptions.RayError as error:
            raise WorkerLostError(self._cause(error, ref.handle.node), gist(error)) from error
        if not isinstance(answer, handshake.Identity):
            return answer
        ref.handle.node = answer.node
        return answer.name

    def kill(self, worker: _Handle) -> None:
        """End an actor's process."""
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
        """Whether a node is lost. Ray's list is about 15 s late, so its port is probed too."""
        if self._head_lost_since:
            return True
        if node not in self._lost_nodes:
            entry = next((n for n in ray.nodes() if n["NodeID"] == node and n["Alive"]), None)
            where = (entry["NodeManagerAddress"], entry["NodeManagerPort"]) if entry else None
            if where is None or not (self._is_client or _listens(*where)):
                self._lost_nodes.add(node)
        return node in self._lost_nodes

    def _check_head(self) -> None:
        now = time.monotonic()
        if now - self._head_checked < PROBE_SECONDS:
            return
        self._head_checked = now
        host, _, port = self._head_address.rpartition(":")
        if _listens(host.strip("[]"), int(port)):
            self._head_lost_since = None
            return
        self._head_lost_since = self._head_lost_since or now
        if (seconds := now - self._head_lost_since) >= _HEAD_SECONDS:
            raise DeviceError(
                f"the head of the Ray cluster at {self._head_address} has not answered for "
                f"{seconds:.0f} s: the record is kept; resume once there is a head."
            )


class _UnfitError(Exception):
    """A worker cannot train on its node.

    Args:
        node: the cluster's id of the node.
        text: a sentence that names the machine.
    """

    def __init__(self, node: str, text: str) -> None:
        super().__init__(node, text)
        self.node, self.text = node, text


class _GpuUnusableError(Exception):
    """An earlier candidate made the GPU unusable in this process; another process is needed."""


class Worker:
    """The actor: one process that trains one candidate after the other."""

    def __init__(self) -> None:
        self._is_gpu_unusable = False

    def prepare(
        self, driver: Identity, plugins: tuple[str, ...], references: Iterable[Any]
    ) -> Identity:
        """Load everything that trainings on this worker need; return its identity.

        Args:
            driver: the driver's identity, which this worker's must equal.
            plugins: modules to import.
            references: Ray references to the tuple (task, training function, resources, time
                limit) and to the data.

        Raises:
            _UnfitError: code or plug-ins differ from the driver's, or torch cannot use the GPU.
        """
        # The driver handles a user's interrupt; one raised here is a candidate's failure.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        torch.set_num_threads(1)
        try:
            for plugin in plugins:
                import_module(plugin)
            identity = handshake.identity(ray.get_runtime_context().get_node_id())
            if lacking := identity.lacks(driver):
                raise DeviceError(f"there is {lacking}")
            options, self._data = map(ray.get, references)
            self._task, self._train, self._resources, self._time_limit = options
            if self._resources.gpus:
                _prepare_gpu(self._resources.gpus)
        except NasError as error:
            raise _unfit(str(error)) from error
        except Exception as error:
            raise _unfit(f"{type(error).__name__}: {error}") from error
        return identity

    def calibrate(self) -> Mapping[str, Any]:
        """Measure the time of each unit of work on this machine, by name."""
        return calibrate_for(self._task, self._resources.device)

    def evaluate(self, trial: Trial) -> Evaluation:
        """Train one candidate.

        Raises:
            _UnfitError: the device is missing.
            _GpuUnusableError: this process can no longer use its GPU; nothing was trained.
        """
        if self._is_gpu_unusable:
            raise _GpuUnusableError
        gpus, device = self._resources.gpus, self._resources.device
        try:
            evaluation = train_guarded(
                self._train, trial, self._task, self._data, device, self._time_limit
            )
        except DeviceError as error:
            raise _unfit(str(error)) from error
        if gpus:
            # Some errors make the GPU unusable until the process ends.
            is_suspect = evaluation.status == "failed" and not _is_cuda_usable()
            self._is_gpu_unusable = is_suspect or len(CudaGraphs.broken) > _MAX_BROKEN_GRAPHS
            if gpus < 1 and not self._is_gpu_unusable:
                torch.cuda.empty_cache()  # for the workers that share the GPU
        return evaluation


def _unfit(text: str) -> _UnfitError:
    machine = f"{socket.gethostname()} ({ray.util.get_node_ip_address()})"
    text = f"the machine {machine} cannot train: {text.rstrip('.')}."
    return _UnfitError(ray.get_runtime_context().get_node_id(), text)


def _prepare_gpu(gpus: float) -> None:
    if not torch.cuda.is_available():
        raise DeviceError(
            "torch sees no GPU where Ray counts one: install a torch that was built for it, or ask "
            "for 0 GPUs a worker."
        )
    if gpus < 1:
        # A candidate that needs more than its part must not make other workers fail.
        fraction = gpus - _CONTEXT_BYTES / torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(max(fraction, 0.01))


def _is_cuda_usable() -> bool:
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=PROBE_SECONDS / 2).close()
    except OSError:
        return False
    return True


def gist(error: BaseException) -> str:
    """An error of Ray in one line: the error in the worker, or how its process ended."""
    text = str(getattr(error, "cause", None) or error)
    lines = (text.partition("Worker exit detail:")[2] or text).strip().splitlines() or [text]
    line = lines[-1 if "traceback" in text.lower() else 0]
    return line.partition(" Some common causes")[0].strip().rstrip(".") or type(error).__name__
