"""The findings of ``nas doctor``: versions, devices, data, disk, plug-ins, and faults of a run."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from nas.common.errors import NasError, NasWarning, RunError
from nas.common.system import multiplies_in_bfloat16, processor_name
from nas.common.text import last_line, plural
from nas.costs import COSTS
from nas.evaluation.execution import Execution, Machine, allocate, mps_runs
from nas.evaluation.trial import Purpose
from nas.exporting import EXPORTS
from nas.genome.mechanisms import MECHANISMS
from nas.genome.primitives.base import REGISTRY as PRIMITIVES
from nas.report.units import human
from nas.searching.algorithm import ALGORITHMS
from nas.store import RUNS, Run, find_run, open_run, this_session
from nas.store.frozen import load_frozen_task
from nas.store.lock import is_held
from nas.store.weights import read_weights, weights_path
from nas.tasks import TASKS
from nas.tasks.images.data import cache_folder


@dataclass(frozen=True)
class Finding:
    """The result of one check; ``found`` says what helps if what it is ``about`` is broken."""

    about: str
    found: str
    is_broken: bool = False


def examine(run: str | None = None, runs: Path = RUNS) -> list[Finding]:
    """Return the findings about this machine and about a run; uses no network."""
    versions = ", ".join(f"{name} {text}" for name, text in this_session("").versions.items())
    precision = "bfloat16" if multiplies_in_bfloat16() else "float32"
    findings = [
        Finding("versions", versions),
        Finding("processor", f"{processor_name()}; trains in {precision}"),
        *_devices(),
        _data(),
        _disk(runs),
        *_plugins(),
    ]
    if run is not None:
        folder = find_run(run, runs)
        faults = [Finding(f"run {folder.name}", fault, True) for fault in check_run(folder)]
        findings += faults or [Finding(f"run {folder.name}", "no faults")]
    return findings


def _devices() -> Iterator[Finding]:
    import torch

    from nas.training.hardware import usable_gpus

    try:
        gpus = usable_gpus()
        workers = allocate(Execution(), [Machine(os.cpu_count() or 1, gpus, has_mps=mps_runs())])
    except (NasError, OSError, RuntimeError) as error:  # of torch that does not match the driver
        yield Finding("GPU", last_line(str(error)), True)
        return
    names = ", ".join(torch.cuda.get_device_name(i) for i in range(gpus))
    mps = "MPS runs" if mps_runs() else "without MPS, so that workers take turns"
    yield Finding("GPU", f"{names}; CUDA {torch.version.cuda}; {mps}" if gpus else "none")
    share = workers[0].gpus
    device = f"on {share:g} of a GPU each" if share else "on processor cores"
    yield Finding("workers", f"{len(workers)} {device}, by default")


def _data() -> Finding:
    folder = cache_folder() / "cifar10"
    if (folder / "cifar-10-batches-py").is_dir():
        return Finding("CIFAR-10", f"in {folder}")
    offline = "without a network, give --data digits or --data imagefolder:PATH"
    return Finding("CIFAR-10", f"not in {folder}; a search downloads it; {offline}")


def _disk(runs: Path) -> Finding:
    existing = runs.resolve()
    while not existing.exists():
        existing = existing.parent
    text = f"{plural(len([*runs.glob('*/run.sqlite')]), 'run')} in {runs}"
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        help_ = "work in a folder of yours, or give --runs FOLDER"
        return Finding("runs", f"{text}, which cannot be written ({error.strerror}); {help_}", True)
    return Finding("runs", f"{text}, {human(shutil.disk_usage(existing).free)}B free")


def _plugins() -> list[Finding]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NasWarning)  # the findings name broken plug-ins
        found = [
            Finding(
                f"plug-in {plugin.name}",
                f"{registry.group} of {plugin.package} {plugin.version}: "
                f"{plugin.fault or ', '.join(plugin.members)}",
                bool(plugin.fault),
            )
            for registry in (PRIMITIVES, MECHANISMS, TASKS, COSTS, ALGORITHMS, EXPORTS)
            for plugin in registry.plugins()
        ]
    return found or [Finding("plug-ins", "none")]


def check_run(folder: Path) -> list[str]:
    """Return the faults of a run, or of its database alone while another process writes the run."""
    try:
        with open_run(folder) as run, run.snapshot():
            faults = [*_database_faults(run)]
            if not is_held(folder):
                faults += _weights_faults(run)
    except RunError as error:
        return [str(error)]
    return faults


def _database_faults(run: Run) -> Iterator[str]:
    if (fault := run.integrity()) != "ok":
        yield f"{run.folder}: its database is damaged ({fault}). Restore the database from a copy."
    run.trainings(*get_args(Purpose))  # raises RunError if a record cannot be read
    for read in (run.proposals, run.candidates, run.sessions, run.generations, run.incidents):
        read()
    run.answers()


def _weights_faults(run: Run) -> Iterator[str]:
    members = {weights_path(run.folder, member.key): member for member in run.front()}
    if not any(path.parent.is_dir() for path in members):
        return
    task = load_frozen_task(run.setup.front_task).main
    for path, member in members.items():
        try:
            read_weights(path, member.proposal.genome, task)
        except RunError as error:
            yield f"{error} Its results stand, but `nas export --weights` cannot give its weights."
