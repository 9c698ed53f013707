"""The result of ``nas doctor``: resources of this machine, the defaults of a search, and faults.

No network is used and nothing is trained. Only the names of environment variables are listed, since
values may be secrets.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from textwrap import wrap
from typing import Any, Final, Literal

from rich.console import Console

from nas.common.distribution import DISTRIBUTION, install_command
from nas.common.errors import NasError
from nas.common.processor import multiplies_in_bfloat16, processor_name, wide_instructions
from nas.common.text import last_line, plural, printable
from nas.evaluation.execution import Execution, Machine, allocate, mps_runs
from nas.report.table import TextColumn, line_width, say_table
from nas.report.units import human
from nas.store import RUNS, this_session
from nas.tasks.images.folder import cache_folder

State = Literal["ok", "note", "broken"]
EXTRAS: Final = ("hf", "export")
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "firefox")
VARIABLES: Final = (
    "NAS_CACHE", "NAS_DATA", "HF_HOME", "RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN",
    "CUDA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY", "OMP_NUM_THREADS",
)  # fmt: skip
# File systems on which SQLite's locks are unreliable.
NETWORK: Final = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "gpfs", "beegfs",
    "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone",
})  # fmt: skip
LITTLE_MEMORY: Final = 2 * 10**9


@dataclass(frozen=True)
class Finding:
    """The result of one check of ``nas doctor``.

    Attributes:
        about: subject of the check, such as "memory".
        state: "ok"; "broken" if something required does not work; "note" for a remark.
        found: result of the check.
        help: what to do; empty if nothing needs to be done.
    """

    about: str
    state: State
    found: str
    help: str = ""


def examine_machine(runs: Path = RUNS) -> list[Finding]:
    """Return all findings about this machine and the folder ``runs``; imports torch (slow)."""
    versions = this_session("").versions.items()
    browser = next(filter(shutil.which, BROWSERS), None)
    no_browser = "none on PATH; reports need one to be looked at, nothing else does"
    return [
        Finding("versions", "ok", ", ".join(f"{name} {version}" for name, version in versions)),
        *_packages(),
        _processor(),
        _memory(),
        *_driver(),
        *_torch(),
        *_caches(),
        _runs(runs),
        Finding("browser", "ok" if browser else "note", browser or no_browser),
        _environment(),
    ]


def doctor_answer(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the JSON object that ``nas doctor --json`` prints."""
    return {
        "works": not any(finding.state == "broken" for finding in findings),
        "versions": dict(this_session("").versions),
        "findings": [asdict(finding) for finding in findings],
    }


def show_doctor(console: Console, findings: Sequence[Finding]) -> None:
    """Print a line for each finding, followed by its help."""
    width, rows = line_width(console), list[tuple[str, str, str]]()
    for finding in findings:
        lines = [finding.found, *([f"→ {finding.help}"] if finding.help else [])]
        if width is not None:
            lines = [line for text in lines for line in wrap(text, max(20, width - 28))]
        state = "" if finding.state == "ok" else finding.state
        rows.append((finding.about, state, lines[0]))
        rows += [("", "", line) for line in lines[1:]]
    about, states, texts = zip(*rows, strict=True)
    named = [TextColumn("", about, style="dim"), TextColumn("", states, style="bold")]
    say_table(console, [*named, TextColumn("", texts)])


def _packages() -> list[Finding]:
    """Return a finding on the required packages, and one on each optional extra of ``nas``."""

    def normal(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    pattern = re.compile(r"([\w.-]+)[^;]*(?:; extra == ['\"](\w+)['\"])?")
    matches = [pattern.fullmatch(line) for line in metadata.requires(DISTRIBUTION) or ()]
    installed = {normal(package.name) for package in metadata.distributions()}
    missing: dict[str, list[str]] = {"": [], **{extra: [] for extra in EXTRAS}}
    for match in matches:
        if match and (match[2] or "") in missing and normal(match[1]) not in installed:
            missing[match[2] or ""].append(match[1])
    findings = [Finding("packages", "ok", "all that is needed")]
    if needed := missing.pop(""):
        findings = [Finding("packages", "broken", f"no {', '.join(needed)}", "pip install -e .")]
    for extra, names in missing.items():
        about, text = f"extra {extra}", f"no {', '.join(names)}"
        absent = Finding(about, "note", text, install_command(extra))
        findings.append(absent if names else Finding(about, "ok", "installed"))
    return findings


def _processor() -> Finding:
    flags = ", ".join(wide_instructions()) or "no wide instructions"
    precision = "bfloat16" if multiplies_in_bfloat16() else "float32"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    text = (
        f"{processor_name()}, {plural(cores or 1, 'core')} for this process, "
        f"{os.getloadavg()[0]:.1f} busy; {flags}; trains in {precision}"
    )
    return Finding("processor", "ok", text)


def _memory() -> Finding:
    lines = _system_lines("/proc/meminfo")
    if not lines:
        return Finding("memory", "note", "the system does not say")
    sizes = {line.partition(":")[0]: 1024 * int(line.split()[1]) for line in lines if "kB" in line}
    free, total = sizes.get("MemAvailable", 0), sizes.get("MemTotal", 0)
    text = f"{_bytes(free)} free of {_bytes(total)}"
    if free < LITTLE_MEMORY:
        return Finding("memory", "note", text, "fewer workers: each takes about half a gigabyte")
    return Finding("memory", "ok", text)


def _torch() -> list[Finding]:
    """Return findings on the GPUs and on the resources that a search would use by default."""
    try:
        import torch

        from nas.tasks import load_task
        from nas.training.hardware import resolve_precision, usable_gpus

        gpus = usable_gpus()
        names = [torch.cuda.get_device_name(i) for i in range(gpus)]
        model = load_task("vit-cifar10").main
        place = torch.device("cuda" if gpus else "cpu")
        precision = resolve_precision(model.precision, place, model.width)
    # torch raises these if it does not match the driver or the processor.
    except (ImportError, OSError, RuntimeError) as error:
        return [Finding("torch", "broken", last_line(str(error)), "install torch again")]
    except NasError as error:
        return [Finding("GPU", "broken", str(error))]
    gpu = Finding("GPU", "ok", "none that torch can use")
    if gpus:
        mps = "MPS runs" if mps_runs() else "without MPS, so that workers take turns"
        text = f"{', '.join(names)}; torch for CUDA {torch.version.cuda}; {mps}"
        gpu = Finding("GPU", "ok", f"{text}; a training of vit-cifar10 in {precision}")
    try:
        workers = allocate(Execution(), [Machine(os.cpu_count() or 1, gpus, has_mps=mps_runs())])
    except NasError as error:
        return [gpu, Finding("a search", "broken", str(error))]
    share = workers[0].gpus
    device = f"{share:g} of a GPU each" if share else "on processor cores"
    text = f"{plural(len(workers), 'worker')}, {device}; task vit-cifar10 on cifar10"
    return [gpu, Finding("a search", "ok", f"{text}, unless its space or you say otherwise")]


def _driver() -> list[Finding]:
    """Return a finding on each GPU that NVIDIA's driver has, whether torch can use it or not."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    query = "--query-gpu=driver_version,memory.free,memory.total,compute_mode,mig.mode.current"
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command
            [program, query, "--format=csv,noheader"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = last_line(getattr(error, "stdout", None)) or str(error)
        return [Finding("driver", "note", f"nvidia-smi fails: {printable(said)}")]
    findings = []
    for number, line in enumerate(done.stdout.splitlines()):
        cells = [printable(cell.strip()) for cell in f"{line},,,,".split(",")]
        version, free, total, mode, mig = cells[:5]
        text = f"driver {version}, {free} free of {total}, compute mode {mode}, MIG {mig}"
        help_ = ""
        if mode == "Prohibited" or (mode == "Exclusive_Process" and not mps_runs()):
            help_ = "`nvidia-smi -c DEFAULT`: workers that share a GPU are several processes"
        elif mig == "Enabled":
            help_ = "name an instance in CUDA_VISIBLE_DEVICES: torch uses one"
        findings.append(Finding(f"GPU {number}", "note" if help_ else "ok", text, help_))
    return findings


def _caches() -> list[Finding]:
    cache = cache_folder()
    cifar = Finding("CIFAR-10", "ok", f"in {_short(cache / 'cifar10')}")
    if not (cache / "cifar10" / "cifar-10-batches-py").is_dir():
        text = f"not in {_short(cache)}; a search downloads it"
        offline = "without a network: --data digits, or --data imagefolder:PATH"
        cifar = Finding("CIFAR-10", "note", text, offline)
    hub = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    folders = ", ".join(map(_short, filter(Path.is_dir, (cache, hub))))
    return [cifar, Finding("caches", "ok", f"{folders}; may be deleted" if folders else "none")]


def _runs(runs: Path) -> Finding:
    existing = runs.resolve()
    while not existing.exists():
        existing = existing.parent
    text = f"{plural(len([*runs.glob('*/run.sqlite')]), 'run')} in {runs}"
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
        text += f", {_bytes(shutil.disk_usage(existing).free)} free"
    except OSError as error:
        text += f", which cannot be written ({error.strerror})"
        return Finding("runs", "broken", text, "work in a folder of yours, or give --runs FOLDER")
    mounts = [line.split()[1:3] for line in _system_lines("/proc/self/mounts")]
    over = [(Path(at), kind) for at, kind in mounts if existing.is_relative_to(at)]
    _, kind = max(over, key=lambda mount: len(mount[0].parts), default=(existing, ""))
    if kind in NETWORK:
        text += f", on a network drive ({kind})"
        help_ = "--runs FOLDER on a local disk: SQLite needs its locks"
        return Finding("runs", "note", text, help_)
    return Finding("runs", "ok", text)


def _environment() -> Finding:
    names = [name for name in VARIABLES if os.environ.get(name)]
    plugins = sorted(
        f"{point.name} ({point.group})"
        for package in metadata.distributions()
        for point in package.entry_points
        if point.group.startswith("nas.")
    )
    text = f"set: {', '.join(names) or 'none'}; plug-ins: {', '.join(plugins) or 'none'}"
    return Finding("environment", "ok", text)


def _bytes(number: float) -> str:
    text = human(number)
    return f"{text}B" if text[-1].isalpha() else f"{text} B"


def _short(path: Path) -> str:
    """Return a path as text; an environment variable or "~" replaces its beginning if possible."""
    for name in ("NAS_CACHE", "HF_HOME"):
        if (value := os.environ.get(name)) and path.is_relative_to(value):
            return str(Path(f"${name}", path.relative_to(value)))
    home = Path.home()
    return str(Path("~", path.relative_to(home))) if path.is_relative_to(home) else str(path)


def _system_lines(path: str) -> list[str]:
    """Return the lines of a file of Linux's /proc; empty on other systems."""
    try:
        return Path(path).read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return []
