"""Ray's side of `pool.Pool`: workers that are actors, and what became of one that is lost.

A worker says first what it has (`handshake`); one that cannot do this work is refused, with its
machine's name. https://docs.ray.io/en/latest/ray-core/actors.html
"""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import ray
import ray.exceptions
import torch

from nas.common.errors import DeviceError, NasError
from nas.evaluation import handshake
from nas.evaluation.pool import WorkerLostError, WorkerRefusedError
from nas.evaluation.trainer import calibrate_for, load_optimizers, train_guarded
from nas.training.stepping import CudaGraphs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from concurrent.futures import Future

    from nas.evaluation.execution import WorkerResources
    from nas.evaluation.handshake import Identity
    from nas.evaluation.pool import Cause
    from nas.evaluation.trial import Evaluation, Trial

PROBE_SECONDS: Final = 5.0
_CONTEXT_BYTES: Final = 2**29  # of a GPU's memory, which each process takes beside its tensors
_MOST_BROKEN: Final = 4
_HEAD_SECONDS: Final = 30.0  # without the head; after 60 Ray ends the process, with a stack trace
_THREADS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(eq=False)
class _Place:
    """An actor, and the node that it said to be on."""

    actor: Any
    node: str = ""


class ActorPool:
    """Ray's side of `pool.Pool`. A reference is a future, so that nobody asks all workers."""

    def __init__(self, share: WorkerResources, *given: Any) -> None:
        """A worker needs one core, one thread, its share of a GPU, and this package."""
        paths = [str(handshake.PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {"PYTHONPATH": os.pathsep.join(paths), **dict.fromkeys(_THREADS, "1")}
        self._actor_class = ray.remote(Worker).options(
            num_cpus=1, num_gpus=share.gpus, runtime_env={"env_vars": environment}
        )
        self._given = handshake.identity(), handshake.plugins(), given
        self._arrived: SimpleQueue[Future[Any]] = SimpleQueue()
        self._gone: set[str] = set()  # nodes, like those below
        self._refused: set[str] = set()
        # Through ray:// nothing but its proxy is reached from here.
        self._is_near = not ray.util.client.ray.is_connected()
        self._head = _Head(ray.get_runtime_context().gcs_address)

    def start(self) -> tuple[Any, Any]:
        """Start an actor, which Ray keeps waiting until there is room for it."""
        place = _Place(self._actor_class.remote())
        return place, self._expect(place, place.actor.prepare.remote(*self._given))

    def submit(self, worker: _Place, trial: Trial | None) -> Any:
        """Call it."""
        actor = worker.actor
        asked = actor.calibrate.remote() if trial is None else actor.evaluate.remote(trial)
        return self._expect(worker, asked)

    def wait(self, timeout: float | None) -> Iterable[Any]:
        """What Ray has called back with, or nothing after some seconds: the head is looked at."""
        if self._is_near:
            self._head.check()
        seconds = PROBE_SECONDS if timeout is None else min(timeout, PROBE_SECONDS)
        found = []
        with suppress(Empty):
            found.append(self._arrived.get(timeout=seconds))
            while True:
                found.append(self._arrived.get_nowait())
        return found

    def get(self, ref: Any) -> Any:
        """What came, or why nothing can."""
        try:
            answer = ref.result()
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, _UnfitError):
                raise self._refusal(error.cause) from error
            if isinstance(error.cause, _GpuUnusableError):
                raise WorkerLostError("gpu_unusable", "it can use its GPU no longer") from error
            if isinstance(error.cause, NasError):
                raise error.cause from None
            raise DeviceError(f"a Ray worker cannot work: {gist(error)}.") from error
        except ray.exceptions.RayError as error:
            raise WorkerLostError(self._cause(error, ref.place.node), gist(error)) from error
        if not isinstance(answer, handshake.Identity):
            return answer
        ref.place.node = answer.node
        return answer.name

    def kill(self, worker: _Place) -> None:
        """End the actor's process."""
        if self._head.is_there:  # else Ray would wait for it
            ray.kill(worker.actor)

    def _expect(self, place: _Place, asked: Any) -> Any:
        future = asked.future()
        future.place = place
        future.add_done_callback(self._arrived.put)
        return future

    def _cause(self, error: Exception, node: str) -> Cause:
        if isinstance(error, ray.exceptions.OutOfMemoryError):
            return "memory"
        if getattr(error, "preempted", False):
            return "preempted"
        return "node" if node and self._is_gone(node) else "process"

    def _is_gone(self, node: str) -> bool:
        """Whether a worker's node is lost. Ray's list says so some 15 s late; its port at once."""
        if not self._head.is_there:
            return True
        if node not in self._gone:
            known = next((n for n in ray.nodes() if n["NodeID"] == node and n["Alive"]), None)
            where = (known["NodeManagerAddress"], known["NodeManagerPort"]) if known else None
            if where is None or (self._is_near and not _listens(*where)):
                self._gone.add(node)
        return node in self._gone

    def _refusal(self, error: _UnfitError) -> WorkerRefusedError:
        self._refused.add(error.node)
        offer = {n["NodeID"] for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU")}
        return WorkerRefusedError(str(error), is_last=offer <= self._refused)


class _Head:
    """The head of a cluster: whether it can still be reached."""

    def __init__(self, address: str) -> None:
        self._address, self._asked = address, time.monotonic()
        self._gone_since: float | None = None

    @property
    def is_there(self) -> bool:
        """Whether it answered last."""
        return self._gone_since is None

    def check(self) -> None:
        """Look now and then.

        Raises:
            DeviceError: it has been away for long.
        """
        now = time.monotonic()
        if now - self._asked < PROBE_SECONDS:
            return
        self._asked = now
        host, _, port = self._address.rpartition(":")
        if _listens(host.strip("[]"), int(port)):
            self._gone_since = None
            return
        self._gone_since = self._gone_since or now
        if now - self._gone_since >= _HEAD_SECONDS:
            raise DeviceError(
                f"the head of the Ray cluster at {self._address} has not answered for "
                f"{now - self._gone_since:.0f} s: what was recorded is kept; go on when there is "
                "one."
            )


class _UnfitError(Exception):
    """A worker cannot do what it is for, on a node; the text is a sentence."""

    def __init__(self, node: str, text: str) -> None:
        super().__init__(node, text)
        self.node = node

    def __str__(self) -> str:
        return str(self.args[1])


class _GpuUnusableError(Exception):
    """A worker has trained what ended its use of its GPU; another process has to come."""


class Worker:
    """The actor: one process that trains one candidate after the other."""

    def __init__(self) -> None:
        self._is_broken = False

    def prepare(self, home: Identity, plugins: tuple[str, ...], given: Iterable[Any]) -> Identity:
        """Say who this is, and make ready.

        Args:
            given: references to task, training function, share and time limit, and to the data.

        Raises:
            _UnfitError: code or plug-ins are not those at home, or the GPU that Ray gives is none
                that torch can use.
        """
        # A person's interrupt is for the driver; one that is raised here is a candidate's fault.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        torch.set_num_threads(1)
        node = ray.get_runtime_context().get_node_id()
        try:
            handshake.load(plugins)
            own = handshake.identity(node)
            if lacking := own.lacks(home):
                raise DeviceError(f"there is {lacking}")
            (self._task, self._train, self._share, self._time_limit), self._data = map(
                ray.get, given
            )
            load_optimizers()  # seconds that count as starting, not against the first trial
            if self._share.gpus:
                self._prepare_gpu()
        except Exception as error:
            fault = (
                str(error) if isinstance(error, NasError) else f"{type(error).__name__}: {error}"
            )
            raise _UnfitError(node, f"{_here()} cannot train: {fault.rstrip('.')}.") from error
        return own

    def calibrate(self) -> Mapping[str, Any]:
        """Measure how long things take here."""
        return calibrate_for(self._task, self._share.device)

    def evaluate(self, trial: Trial) -> Evaluation:
        """Train one candidate.

        Raises:
            _UnfitError: the device is no longer there.
            _GpuUnusableError: this process can use it no longer; the candidate was not begun.
        """
        if self._is_broken:
            raise _GpuUnusableError
        where = self._task, self._data, self._share.device, self._time_limit
        try:
            evaluation = train_guarded(self._train, trial, *where)
        except DeviceError as error:
            node = ray.get_runtime_context().get_node_id()
            raise _UnfitError(node, f"{_here()} cannot train: {error}") from error
        # Some faults end a process's use of its GPU for good, and graphs whose capture failed keep
        # their memory; then a new worker has to come.
        is_gpu_unusable = len(CudaGraphs.broken) > _MOST_BROKEN
        is_gpu_unusable = is_gpu_unusable or (
            evaluation.status == "failed" and not _is_cuda_sound()
        )
        self._is_broken = self._share.gpus > 0 and is_gpu_unusable
        if 0 < self._share.gpus < 1 and not is_gpu_unusable:
            torch.cuda.empty_cache()  # a neighbour may need what this process has freed
        return evaluation

    def _prepare_gpu(self) -> None:
        if not torch.cuda.is_available():
            raise DeviceError(
                "torch sees no GPU where Ray counts one: install a torch that was built for it, "
                "or ask for 0 GPUs a worker."
            )
        if self._share.gpus < 1:
            # A candidate that needs more than its share fails alone, not its neighbours.
            total = torch.cuda.get_device_properties(0).total_memory
            fraction = max(self._share.gpus - _CONTEXT_BYTES / total, 0.01)
            torch.cuda.set_per_process_memory_fraction(fraction)


def _here() -> str:
    return f"the machine {socket.gethostname()} ({ray.util.get_node_ip_address()})"


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=PROBE_SECONDS / 2).close()
    except OSError:
        return False
    return True


def _is_cuda_sound() -> bool:
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def gist(error: BaseException) -> str:
    """One line of what an error of Ray's says: the error that a worker met, or how it ended."""
    text = str(getattr(error, "cause", None) or error)
    lines = text.partition("Worker exit detail:")[2] or text
    is_remote_trace = "traceback" in text.lower()
    line = lines.strip().splitlines()[-1 if is_remote_trace else 0] if lines.strip() else text
    return line.partition(" Some common causes")[0].strip().rstrip(".") or type(error).__name__
