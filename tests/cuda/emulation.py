"""Build the emulated CUDA runtime, and read its counters in a process that runs on it."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
LIBRARIES = {"emulated_runtime.cpp": "libemulated.so", "emulated_driver.cpp": "libcuda.so.1"}


def missing() -> str:
    """What the emulated runtime cannot be built without, as a reason to skip; empty if nothing."""
    if sys.platform != "linux" or shutil.which("g++") is None:
        return "the emulated CUDA runtime needs Linux and g++"
    if not all(folder.is_dir() for folder in _headers()):
        return "the emulated CUDA runtime needs a CUDA build of torch, whose wheels hold headers"
    return ""


def build(folder: Path) -> dict[str, str]:
    """Compile both libraries into a folder; return the environment of processes that use them."""
    (folder / "include").mkdir()
    runtime, compiler = _headers()
    (folder / "include" / "crt").symlink_to(compiler)
    for source, library in LIBRARIES.items():
        command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-Wall", "-Werror"]
        command += [f"-I{runtime}", f"-I{folder / 'include'}", "-o", str(folder / library)]
        subprocess.run([*command, str(HERE / source)], check=True)
    preload = {"LD_PRELOAD": str(folder / "libemulated.so"), "LD_LIBRARY_PATH": str(folder)}
    # Torch 2.14 replaces some products by Triton kernels, which the emulation cannot run.
    options = {"TRITON_CACHE_DIR": str(folder / "triton"), "TORCH_DISABLE_NATIVE_JIT": "1"}
    return os.environ | preload | options


def counter(name: str) -> int:
    """A count of the emulated runtime since ``reset``.

    The names: kernels, copies, fills, copies_to_host, copies_to_device, synchronisations,
    allocations, captures, capture_faults, replays, replayed_nodes.
    """
    function = ctypes.CDLL(None).emulated_counter
    function.restype = ctypes.c_longlong
    return function(name.encode())


def reset() -> None:
    """Set all counts to zero."""
    ctypes.CDLL(None).emulated_reset()


def _headers() -> tuple[Path, Path]:
    """The folders of the CUDA runtime's headers and of those that they include as ``crt``."""

    def folder(package: str, *parts: str) -> Path:
        spec = importlib.util.find_spec(package)
        roots = spec.submodule_search_locations if spec else None
        return Path(roots[0] if roots else HERE / "missing", *parts)

    runtime = folder("nvidia", "cu13", "include")
    return runtime, folder("triton", "backends", "nvidia", "include", "crt")
