"""Train on Ray: one actor a worker, each in a process of its own, on this machine or a cluster.

The actors live as long as the evaluator; the data lies in Ray's object store and all workers of a
machine read the same copy. `dispatch` says who trains what, and what is done about a worker that
hangs or is lost; here is only how Ray does it: https://docs.ray.io/en/latest/ray-core/actors.html

This is the only file that imports ray.
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
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import ray
import ray.exceptions
import torch

from nas.errors import DeviceError, NasError
from nas.evaluation.dispatch import Dispatcher, WorkerLostError
from nas.evaluation.share import share_out
from nas.evaluation.trainer import (
    budget_of,
    calibrate_for,
    load_optimizers,
    train_candidate,
    train_guarded,
    worker_name,
)
from nas.training.stepping import CudaGraphs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from nas.evaluation.share import Execution, Share
    from nas.evaluation.trainer import Train
    from nas.evaluation.trial import Evaluation, Trial
    from nas.tasks import Data, Task

_PACKAGE: Final = Path(__file__).resolve().parents[1]
_CONTEXT_BYTES: Final = 2**29  # of a GPU's memory, which each process takes beside its tensors
_MOST_BROKEN: Final = 4
_PROBE_SECONDS: Final = 5.0
_IF_ABSENT: Final = (
    "Expected the host:port of a running cluster's head node, which `ray start --head` prints."
)
_IF_REFUSED: Final = (
    "It asks for a token: set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN if ~/.ray/auth_token does "
    "not hold the cluster's."
)
_THREADS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


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
            share = share_out(execution, cores=cores, gpus=gpus)
            super().__init__(
                _ActorPool(share, (task, ray.put(data), train, share, limit)),
                share.workers,
                budget_of(task, data),
                patience=math.inf if limit is None else limit + grace,
                start_seconds=execution.start_seconds,
            )
        except BaseException:
            self._disconnect()
            raise

    def close(self) -> None:
        """End the workers, drop the data and leave the cluster, or end it if it is ours."""
        if self._slots:
            super().close()
            del self._pool
            self._disconnect()

    def _disconnect(self) -> None:
        if self._is_our_connection:
            self._is_our_connection = False
            ray.shutdown()


class _ActorPool:
    """Ray's side of `dispatch.Pool`."""

    def __init__(self, share: Share, arguments: tuple[Any, ...]) -> None:
        """A worker needs one core, one thread, its share of a GPU, and this package."""
        paths = [str(_PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {"PYTHONPATH": os.pathsep.join(paths), **dict.fromkeys(_THREADS, "1")}
        self._actor_class = ray.remote(_Worker).options(
            num_cpus=1, num_gpus=share.gpus, runtime_env={"env_vars": environment}
        )
        self._arguments = arguments

    def start(self) -> tuple[Any, Any]:
        actor = self._actor_class.remote(*self._arguments)
        return actor, actor.prepare.remote()

    def submit(self, worker: Any, trial: Trial | None) -> Any:
        return worker.calibrate.remote() if trial is None else worker.evaluate.remote(trial)

    def wait(self, refs: Sequence[Any], timeout: float | None) -> Iterable[Any]:
        ray.wait(refs, num_returns=1, timeout=timeout)
        answered, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
        return list(answered)

    def get(self, ref: Any) -> Any:
        try:
            return ray.get(ref)
        except ray.exceptions.OutOfMemoryError as error:
            raise WorkerLostError("out_of_memory", _gist(error)) from error
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, NasError):
                raise error.cause from None
            raise DeviceError(f"a Ray worker cannot work: {_gist(error)}.") from error
        except ray.exceptions.RayError as error:
            raise WorkerLostError("worker_lost", _gist(error)) from error

    def kill(self, worker: Any) -> None:
        ray.kill(worker)


class _Worker:
    """The actor: one process that trains one candidate after the other."""

    def __init__(
        self, task: Task, data: Data, train: Train, share: Share, time_limit: float | None
    ) -> None:
        self._task, self._data, self._train = task, data, train
        self._share, self._time_limit = share, time_limit
        self._is_broken = False

    def prepare(self) -> str:
        """Make ready; give the worker's name.

        Raises:
            DeviceError: the GPU that Ray gives is none that torch can use.
        """
        # A person's interrupt is for the driver; one that is raised here is a candidate's fault.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        torch.set_num_threads(1)
        load_optimizers()  # seconds that count as starting, not against the first trial's limit
        if self._share.gpus:
            self._prepare_gpu()
        return worker_name()

    def calibrate(self) -> Mapping[str, Any]:
        """Measure how long things take here."""
        return calibrate_for(self._task, self._share.device)

    def evaluate(self, trial: Trial) -> Evaluation:
        """Train one candidate."""
        if self._is_broken:
            os._exit(1)
        where = self._task, self._data, self._share.device, self._time_limit
        evaluation = train_guarded(self._train, trial, *where, passes=(DeviceError,))
        # Some faults end a process's use of its GPU for good, and graphs whose capture failed keep
        # their memory; then a new worker has to come.
        is_worn = len(CudaGraphs.broken) > _MOST_BROKEN
        is_worn = is_worn or (evaluation.status == "failed" and not _is_cuda_sound())
        self._is_broken = self._share.gpus > 0 and is_worn
        if 0 < self._share.gpus < 1 and not is_worn:
            torch.cuda.empty_cache()  # a neighbour may need what this process has freed
        return evaluation

    def _prepare_gpu(self) -> None:
        if not torch.cuda.is_available():
            raise DeviceError(
                f"torch sees no GPU on {socket.gethostname()}, where Ray counts one: install a "
                "torch that was built for it, or ask for 0 GPUs a worker."
            )
        if self._share.gpus < 1:
            # A candidate that needs more than its share fails alone, not its neighbours.
            total = torch.cuda.get_device_properties(0).total_memory
            fraction = max(self._share.gpus - _CONTEXT_BYTES / total, 0.01)
            torch.cuda.set_per_process_memory_fraction(fraction)


def _is_cuda_sound() -> bool:
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


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
        share_out(execution, cores=os.cpu_count() or 1, gpus=gpus)
    try:
        if address is None:
            # "local" never joins a cluster that happens to run here or that RAY_ADDRESS names.
            given = {"num_cpus": execution.workers, "num_gpus": gpus}
            ray.init("local", include_dashboard=False, **given, **quiet)
        else:
            _probe(address)
            # Our copy of this package goes along: a worker anywhere trains with the code that is
            # to read its results.
            ray.init(address, runtime_env={"py_modules": [str(_PACKAGE)]}, **quiet)
    except Exception as error:
        raise DeviceError(_why_not_connected(address, error)) from error
    return True


def _why_not_connected(address: str | None, error: Exception) -> str:
    if address is None:
        return (
            f"Ray could not start on this machine: {_gist(error)}. Train without it by "
            "--backend local."
        )
    is_refused = "Authentication" in f"{error} {error.__cause__}"
    help_ = _IF_REFUSED if is_refused else _IF_ABSENT
    return f"no Ray cluster can be reached at {address!r}: {_gist(error)}. {help_}"


def _probe(address: str) -> None:
    """See whether anybody listens; Ray itself keeps trying, and talking, for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_SECONDS).close()


def _gist(error: BaseException) -> str:
    """One line of what an error of Ray's says: the error that a worker met, or how it ended."""
    text = str(getattr(error, "cause", None) or error)
    lines = text.partition("Worker exit detail:")[2] or text
    is_remote_trace = "traceback" in text.lower()
    line = lines.strip().splitlines()[-1 if is_remote_trace else 0] if lines.strip() else text
    return line.partition(" Some common causes")[0].strip().rstrip(".") or type(error).__name__
