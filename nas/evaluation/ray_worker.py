"""The actor that trains candidates on Ray, and the plug-ins that it imports first.

A plug-in is a module outside this package that has registered a primitive or a task family.
"""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import ray
import torch

from nas.common.captures import CudaGraphs
from nas.common.errors import DeviceError, NasError
from nas.evaluation.trainer import train_guarded, worker_name
from nas.evaluation.trial import Evaluation, Trial
from nas.genome.mechanisms import MECHANISMS
from nas.genome.primitives import names as primitive_names
from nas.genome.primitives.base import REGISTRY
from nas.tasks import TASKS
from nas.training.hardware import check_computes, usable_gpus

PACKAGE: Final = Path(__file__).resolve().parents[1]
_CONTEXT_BYTES: Final = 2**29  # GPU memory of each process besides its tensors
_MAX_BROKEN_GRAPHS: Final = 4  # a CUDA graph whose capture failed keeps its memory


def torch_version() -> str:
    """Return the version of torch without its build; CPU and GPU builds may work together."""
    return str(torch.__version__).partition("+")[0]


def plugins() -> tuple[str, ...]:
    """Return the modules outside this package of primitives, task families and mechanisms.

    If the script that runs defines one, workers cannot import it, and DeviceError is raised.
    """
    primitive_names()  # loads installed plug-ins
    members: list[type] = [primitive.module for primitive in REGISTRY.values()]
    members += [TASKS[name] for name in TASKS.names()]
    modules = dict.fromkeys(member.__module__ for member in members)
    # A hybrid names the mechanism of its other layers.
    modules |= dict.fromkeys(p.value.partition(":")[0] for p in MECHANISMS.plugins() if p.members)
    if "__main__" in modules:
        raise DeviceError(
            "the running script defines a primitive or a task family, which workers cannot import: "
            "define it in a module, or train in this process (--backend local)."
        )
    return tuple(m for m in modules if m.partition(".")[0] != PACKAGE.name)


def sources(modules: Iterable[str]) -> list[Path]:
    """Return the files or folders of the top-level packages that contain the given modules."""
    tops = [sys.modules[top] for top in dict.fromkeys(m.partition(".")[0] for m in modules)]
    return [Path(next(iter(getattr(top, "__path__", [top.__file__])))) for top in tops]


class Worker:
    """The Ray actor: a process that trains one candidate after another."""

    def prepare(
        self, version: str, plugins: tuple[Sequence[str], Sequence[str]], references: Iterable[Any]
    ) -> tuple[str, str]:
        """Load everything that trainings need; return the worker's name and its machine's Ray id.

        ``version`` is the driver's version of torch. ``plugins`` are names of modules to import and
        the folders of those that are single files. ``references`` are the arguments of `ActorPool`.
        DeviceError, which names the machine, is raised if torch has another version or cannot use
        the GPU, or if a plug-in cannot be imported.
        """
        # The driver handles a user's interrupt; an interrupt raised here is a candidate's failure.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        torch.set_num_threads(1)
        context = ray.get_runtime_context()
        try:
            if torch_version() != version:
                raise DeviceError(f"it has torch {torch_version()}, and the command has {version}")
            names, folders = plugins
            sys.path += [folder for folder in folders if folder not in sys.path]
            for name in names:
                import_module(name)
            options, self._data = map(ray.get, references)
            self._tasks, self._train, self._time_limit = options
            self._gpus = context.get_assigned_resources().get("GPU", 0.0)
            self._device = "cuda" if self._gpus else "cpu"
            if self._gpus:
                _prepare_gpu(self._gpus)
        except NasError as error:
            raise _unfit(str(error)) from error
        except Exception as error:
            raise _unfit(f"{type(error).__name__}: {error}") from error
        return worker_name(), context.get_node_id()

    def measure(self, function: Callable[[str], Any]) -> Any:
        """See `Evaluator`."""
        return function(self._device)

    def evaluate(self, trial: Trial, is_alone: bool) -> tuple[Evaluation, bool]:
        """Train one candidate; return its evaluation, and whether this process can train again.

        Under NVIDIA's MPS an illegal access of one process ends the use of the GPU for its
        neighbours. So if a GPU that several workers share becomes unusable, the reason of the
        failure is "worker_lost", unless no other worker trains (``is_alone``). In this case the
        trial may use the whole GPU's memory.
        """
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
        if not self._gpus:
            return evaluation, True
        # Some errors make the GPU unusable until the process ends.
        if evaluation.status == "failed" and not _is_cuda_usable():
            is_blamed = is_alone or not is_shared
            return evaluation if is_blamed else replace(evaluation, reason="worker_lost"), False
        if is_shared:
            torch.cuda.empty_cache()  # for the workers that share the GPU
            _limit_memory(self._gpus)
        return evaluation, len(CudaGraphs.broken) <= _MAX_BROKEN_GRAPHS


def _unfit(text: str) -> DeviceError:
    machine = f"{socket.gethostname()} ({ray.util.get_node_ip_address()})"
    return DeviceError(f"the machine {machine} cannot train: {text.rstrip('.')}.")


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
