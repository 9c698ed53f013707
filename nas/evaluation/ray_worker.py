"""The actor that trains candidates on Ray, and the check that it runs the driver's code.

The driver is the process that sends trials to the workers. A worker first reports its `Identity`:
the versions of this package and of torch, and its plug-ins. A worker that differs from the driver,
or cannot use its GPU, refuses to train, and its error names the machine. A plug-in is a module
outside this package that has registered a primitive or a task family; the driver sends the names
of its plug-ins, and workers import them.
"""

from __future__ import annotations

import hashlib
import signal
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import ray
import torch

from nas.common.captures import CudaGraphs
from nas.common.errors import DeviceError, NasError
from nas.common.text import last_line
from nas.evaluation.trainer import calibrate_for, train_guarded, worker_name
from nas.evaluation.trial import Evaluation, Trial
from nas.genome.primitives import names as primitive_names
from nas.genome.primitives.base import REGISTRY
from nas.tasks import TASKS
from nas.training.hardware import check_computes, usable_gpus

PACKAGE: Final = Path(__file__).resolve().parents[1]
_CONTEXT_BYTES: Final = 2**29  # GPU memory of each process besides its tensors
_MAX_BROKEN_GRAPHS: Final = 4  # a CUDA graph whose capture failed keeps its memory


@dataclass(frozen=True, slots=True)
class Identity:
    """The versions of a process's code, and the primitives and task families that it knows.

    A worker can train for a driver if their identities agree.

    Attributes:
        name: host name and process id.
        node: Ray's id of the machine; empty for the driver.
        code: digest of this package's source files.
        torch: version of torch, without the suffix of its build.
        members: registered primitives and task families, such as "primitive 'softmax'".
    """

    name: str
    node: str
    code: str
    torch: str
    members: frozenset[str]

    def lacks(self, driver: Identity) -> str:
        """Return what this worker lacks to train for the driver, as a text for the user; or ""."""
        if self.code != driver.code:
            return f"another nas (its code is {self.code}, here it is {driver.code})"
        if self.torch != driver.torch:
            return f"torch {self.torch}, and here it is {driver.torch}"
        if missing := sorted(driver.members - self.members):
            return f"no {', '.join(missing)}: install the plug-in there, and define it in a module"
        return ""


def identity(node: str = "") -> Identity:
    """Return this process's `Identity`: its code, torch version, primitives and task families."""
    members = {f"primitive {name!r}" for name in primitive_names()}
    members |= {f"task family {name!r}" for name in TASKS.names()}
    version, *_ = str(torch.__version__).split("+")  # builds for CPUs and GPUs may work together
    return Identity(worker_name(), node, _code_digest(), version, frozenset(members))


@cache
def _code_digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(str(path.relative_to(PACKAGE)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:8]


def plugins() -> tuple[str, ...]:
    """Return the names of modules outside this package that define registered members.

    A member is a primitive or a task family.
    """
    primitive_names()  # loads installed plug-ins
    members: list[type] = [primitive.module for primitive in REGISTRY.values()]
    members += [TASKS.get(name) for name in TASKS.names()]
    modules = dict.fromkeys(member.__module__ for member in members)
    return tuple(m for m in modules if m.partition(".")[0] not in (PACKAGE.name, "__main__"))


def sources(modules: Iterable[str]) -> list[Path]:
    """Return the files or folders of the top-level packages that contain the given modules."""
    tops = [sys.modules[top] for top in dict.fromkeys(m.partition(".")[0] for m in modules)]
    return [Path(next(iter(getattr(top, "__path__", [top.__file__])))) for top in tops]


class UnfitError(Exception):
    """Raised by a worker that cannot train on its machine.

    Args:
        node: Ray's id of the machine.
        text: a sentence for the user that names the machine and the reason.
    """

    def __init__(self, node: str, text: str) -> None:
        super().__init__(node, text)
        self.node, self.text = node, text


class GpuUnusableError(Exception):
    """Raised by a worker whose process can no longer use its GPU; an earlier candidate broke it."""


class CudaFaultError(Exception):
    """Raised by a worker whose GPU, shared with others, became unusable during a training.

    Under NVIDIA's MPS an illegal access of one process ends the use of the GPU for its neighbours.
    So the trial is not blamed; it is retried while no other trial runs.
    """


class Worker:
    """The Ray actor: a process that trains one candidate after another."""

    def __init__(self) -> None:
        self._is_gpu_unusable = False

    def prepare(
        self,
        driver: Identity,
        plugins: tuple[Sequence[str], Sequence[str]],
        references: Iterable[Any],
    ) -> Identity:
        """Load everything that trainings on this worker need; return the worker's identity.

        Args:
            driver: identity of the driver, which the worker's must match.
            plugins: names of the plug-in modules to import, and the folders of those that are
                single files.
            references: Ray references to the tuple (tasks, training function, time limit) and to
                the data of both tasks, see ``ActorPool``.

        Raises:
            UnfitError: code or plug-ins differ from the driver's, or torch cannot use the GPU.
        """
        # The driver handles a user's interrupt; an interrupt raised here is a candidate's failure.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        torch.set_num_threads(1)
        try:
            names, folders = plugins
            sys.path += [folder for folder in folders if folder not in sys.path]
            for name in names:
                import_module(name)
            worker = identity(ray.get_runtime_context().get_node_id())
            if lacking := worker.lacks(driver):
                raise DeviceError(f"there is {lacking}")
            options, self._data = map(ray.get, references)
            self._tasks, self._train, self._time_limit = options
            self._gpus = ray.get_runtime_context().get_assigned_resources().get("GPU", 0.0)
            self._device = "cuda" if self._gpus else "cpu"
            if self._gpus:
                _prepare_gpu(self._gpus)
        except NasError as error:
            raise _unfit(str(error)) from error
        except Exception as error:
            raise _unfit(f"{type(error).__name__}: {error}") from error
        return worker

    def calibrate(self) -> Mapping[str, Any]:
        """Measure the unit times of operations on this worker's device, and return them."""
        return calibrate_for(self._tasks[1], self._device)

    def evaluate(self, trial: Trial, is_alone: bool = False) -> Evaluation:
        """Train one candidate and return its evaluation.

        Args:
            is_alone: whether no other worker trains; the trial may then use the whole GPU's memory.

        Raises:
            UnfitError: the device is missing.
            GpuUnusableError: this process can no longer use its GPU; the trial was not trained.
            CudaFaultError: the GPU became unusable while other workers trained on it.
        """
        if self._is_gpu_unusable:
            raise GpuUnusableError
        is_shared = 0 < self._gpus < 1
        task, data = self._tasks[trial.is_target], self._data[trial.is_target]
        if is_shared and is_alone:
            torch.cuda.set_per_process_memory_fraction(1.0)
        try:
            evaluation = train_guarded(
                self._train, trial, task, data, self._device, self._time_limit
            )
        except DeviceError as error:
            raise _unfit(str(error)) from error
        if self._gpus:
            # Some errors make the GPU unusable until the process ends.
            is_suspect = evaluation.status == "failed" and not _is_cuda_usable()
            if is_suspect and is_shared and not is_alone:
                raise CudaFaultError(last_line(evaluation.error or "an error of the GPU"))
            self._is_gpu_unusable = is_suspect or len(CudaGraphs.broken) > _MAX_BROKEN_GRAPHS
            if is_shared and not self._is_gpu_unusable:
                torch.cuda.empty_cache()  # for the workers that share the GPU
                _limit_memory(self._gpus)
        return evaluation


def _unfit(text: str) -> UnfitError:
    machine = f"{socket.gethostname()} ({ray.util.get_node_ip_address()})"
    text = f"the machine {machine} cannot train: {text.rstrip('.')}."
    return UnfitError(ray.get_runtime_context().get_node_id(), text)


def _prepare_gpu(gpus: float) -> None:
    if not usable_gpus():
        raise DeviceError(
            "torch sees no GPU where Ray counts one: install a torch that was built for it, or ask "
            "for 0 GPUs a worker."
        )
    check_computes(torch.device("cuda"))
    if gpus < 1:
        _limit_memory(gpus)


def _limit_memory(gpus: float) -> None:
    """Let this process use its fraction of the GPU's memory, so that it makes no neighbour fail."""
    fraction = gpus - _CONTEXT_BYTES / torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(max(fraction, 0.01))


def _is_cuda_usable() -> bool:
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True
