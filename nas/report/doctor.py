"""What this machine offers, what a search would use of it, and what is missing or broken.

Nothing is asked of a network and nothing is trained. Of environment variables names alone are told:
a value may be a secret.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final, Literal

from nas.common.errors import NasError
from nas.common.processor import multiplies_in_bfloat16, processor_name, wide_instructions
from nas.evaluation.execution import Execution, allocate
from nas.report.table import Column, line_width, say_table
from nas.report.text import last_line, plural
from nas.report.units import human
from nas.store import RUNS, this_session
from nas.tasks.images.folder import cache_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

State = Literal["ok", "note", "broken"]
# Modules that every command may need; and those of extras, by the extra's name.
NEEDED: Final = (
    "torch", "torchvision", "pymoo", "moocore", "ray", "fvcore", "networkx", "numpy", "PIL",
    "pydantic", "yaml", "typer", "rich", "sklearn", "scipy", "matplotlib", "safetensors",
    "jaxtyping",
)  # fmt: skip
EXTRAS: Final = {
    "hf": ("datasets",),
    "export": ("onnx", "onnxscript", "onnxruntime", "timm", "transformers"),
}
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "firefox")
VARIABLES: Final = (
    "NAS_CACHE", "NAS_DATA", "HF_HOME", "RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN",
    "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS",
)  # fmt: skip
# Where locks of SQLite cannot be trusted.
NETWORK: Final = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "gpfs", "beegfs",
    "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone",
})  # fmt: skip
PATIENCE_S: Final = 1.0  # for adding up a folder


@dataclass(frozen=True)
class Finding:
    """One line of the answer.

    Attributes:
        state: "broken" is needed and does not work, "note" is good to know.
        help: what to do about it; empty where there is nothing to do.
    """

    about: str
    state: State
    found: str
    help: str = ""


def examine_machine(runs: Path = RUNS) -> list[Finding]:
    """Look at everything; takes as long as importing torch."""
    return [
        _versions(),
        _packages(),
        *(_extra(name) for name in EXTRAS),
        _processor(),
        _memory(),
        *_torch(),
        _cifar10(),
        _caches(),
        _runs(runs),
        _browser(),
        _variables(),
    ]


def doctor_answer(findings: Sequence[Finding]) -> dict[str, Any]:
    """The JSON answer of ``nas doctor``."""
    return {
        "works": not any(one.state == "broken" for one in findings),
        "versions": dict(this_session("").versions),
        "findings": [asdict(one) for one in findings],
    }


def show_doctor(console: Console, findings: Sequence[Finding]) -> None:
    """Print a line a finding, and what helps below it."""
    width, rows = line_width(console), list[tuple[str, str, str]]()
    for one in findings:
        state = "" if one.state == "ok" else one.state
        said = [one.found, *([f"→ {one.help}"] if one.help else [])]
        if width is not None:
            said = [line for text in said for line in wrap(text, max(20, width - 24))]
        rows += [(one.about, state, said[0]), *(("", "", line) for line in said[1:])]
    about, states, found = zip(*rows, strict=True)
    named = [Column("", about, style="dim"), Column("", states, style="bold")]
    say_table(console, [*named, Column("", found)])


def _versions() -> Finding:
    versions = this_session("").versions
    said = ", ".join(f"{name} {version}" for name, version in versions.items())
    return Finding("versions", "ok", said)


def _packages() -> Finding:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        return Finding("packages", "broken", f"no {', '.join(missing)}", "pip install -e .")
    return Finding("packages", "ok", "all that is needed")


def _extra(name: str) -> Finding:
    missing = [module for module in EXTRAS[name] if importlib.util.find_spec(module) is None]
    if not missing:
        return Finding(f"extra {name}", "ok", ", ".join(EXTRAS[name]))
    return Finding(
        f"extra {name}", "note", f"no {', '.join(missing)}", f"pip install 'nas[{name}]'"
    )


def _processor() -> Finding:
    flags = wide_instructions()
    precision = "bfloat16" if multiplies_in_bfloat16() else "float32"
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    said = f"{processor_name()}, {plural(own or 1, 'core')} for this process"
    load = os.getloadavg()[0]
    said += (
        f", {load:.1f} busy; {', '.join(flags) or 'no wide instructions'}; trains in {precision}"
    )
    return Finding("processor", "ok", said)


def _memory() -> Finding:
    try:
        lines = Path("/proc/meminfo").read_text("utf-8").splitlines()
    except OSError:
        return Finding("memory", "note", "the system does not say")
    sizes = {line.partition(":")[0]: 1024 * int(line.split()[1]) for line in lines if "kB" in line}
    free, whole = sizes.get("MemAvailable", 0), sizes.get("MemTotal", 0)
    said = f"{_bytes(free)} free of {_bytes(whole)}"
    if free < 2 * 10**9:
        return Finding("memory", "note", said, "fewer workers: each takes about half a gigabyte")
    return Finding("memory", "ok", said)


def _torch() -> list[Finding]:
    """GPUs, and what a search would use: only torch knows what it can reach."""
    try:
        import torch

        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        names = [torch.cuda.get_device_name(i) for i in range(gpus)]
    # A library that does not fit its driver or its processor fails in any of these ways.
    except (ImportError, OSError, RuntimeError) as error:
        return [Finding("torch", "broken", last_line(str(error)), "install torch again")]
    found = [Finding("GPU", "ok", ", ".join(names) or "none that torch can use")]
    try:
        share = allocate(Execution(), cores=os.cpu_count() or 1, gpus=gpus)
    except NasError as error:
        return [*found, Finding("a search", "broken", str(error))]
    device = f"{share.gpus:g} of a GPU each" if share.gpus else "on processor cores"
    said = f"{plural(share.workers, 'worker')}, {device}; task vit-cifar10 on cifar10"
    return [*found, Finding("a search", "ok", f"{said}, unless its space or you say otherwise")]


def _cifar10() -> Finding:
    folder = cache_folder() / "cifar10" / "cifar-10-batches-py"
    if folder.is_dir():
        return Finding("CIFAR-10", "ok", f"in {_short(folder.parent)}")
    return Finding(
        "CIFAR-10",
        "note",
        f"not in {_short(folder.parents[1])}; a search downloads it",
        "without a network: --data digits, or --data imagefolder:PATH",
    )


def _caches() -> Finding:
    hub = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    said = [f"{_short(folder)} {_size(folder)}" for folder in (cache_folder(), hub)]
    return Finding("caches", "ok", f"{', '.join(said)}; may be deleted")


def _runs(runs: Path) -> Finding:
    there = runs.resolve()
    while not there.exists():
        there = there.parent
    num = len([*runs.glob("*/run.sqlite")])
    said = f"{plural(num, 'run')} in {runs}"
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
        free = shutil.disk_usage(there).free
    except OSError as error:
        why = f"{said}, which cannot be written ({error.strerror})"
        return Finding("runs", "broken", why, "work in a folder of yours, or give --runs FOLDER")
    said += f", {_bytes(free)} free"
    kind = _file_system(there)
    if kind in NETWORK:
        said += f", on a network drive ({kind})"
        return Finding(
            "runs", "note", said, "--runs FOLDER on a local disk: SQLite needs its locks"
        )
    return Finding("runs", "ok", said)


def _browser() -> Finding:
    found = next(filter(shutil.which, BROWSERS), None)
    said = found or "none on PATH; reports need one to be looked at, nothing else does"
    return Finding("browser", "ok" if found else "note", said)


def _variables() -> Finding:
    names = [name for name in VARIABLES if os.environ.get(name)]
    plugins = sorted(
        f"{point.name} ({point.group})"
        for package in metadata.distributions()
        for point in package.entry_points
        if point.group.startswith("nas.")
    )
    said = f"set: {', '.join(names) or 'none'}; plug-ins: {', '.join(plugins) or 'none'}"
    return Finding("environment", "ok", said)


def _bytes(number: float) -> str:
    text = human(number)
    return f"{text}B" if text[-1].isalpha() else f"{text} B"


def _short(path: Path) -> str:
    """A path as a person would write it, without what a variable says."""
    for name in ("NAS_CACHE", "HF_HOME"):
        if (value := os.environ.get(name)) and path.is_relative_to(value):
            return str(Path(f"${name}", path.relative_to(value)))
    home = Path.home()
    return str(Path("~", path.relative_to(home))) if path.is_relative_to(home) else str(path)


def _size(folder: Path) -> str:
    """Bytes of all files in a folder; "over" so many where adding up would take long."""
    total, until = 0, time.monotonic() + PATIENCE_S
    for place, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except OSError:
                continue
        if time.monotonic() > until:
            return f"over {_bytes(total)}"
    return f"{_bytes(total)}"


def _file_system(folder: Path) -> str:
    """The kind of file system that a folder is on; empty where the system does not say."""
    try:
        lines = Path("/proc/self/mounts").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    mounts = [line.split()[1:3] for line in lines]
    over = [(Path(at), kind) for at, kind in mounts if folder.is_relative_to(at)]
    return max(over, key=lambda found: len(found[0].parts), default=(folder, ""))[1]
