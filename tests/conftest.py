"""Fixtures of all tests: one thread, checked shapes, a cache of their own, a recorded run."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jaxtyping import config, install_import_hook

if TYPE_CHECKING:
    from collections.abc import Iterator

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PRIMITIVES = Path(__file__).parent.parent / "nas" / "genome" / "primitives"

# Shapes in annotations are checked at every call of a primitive or runtime function.
install_import_hook(
    [
        "nas.compiler.kernels.attention",
        "nas.compiler.kernels.normalisers",
        "nas.compiler.kernels.pair_scores",
        *(
            f"nas.genome.primitives.{p.stem}"
            for p in PRIMITIVES.glob("*.py")
            if p.stem not in {"__init__", "base", "domains", "signs"}
        ),
    ],
    "beartype.beartype",
)

pytest_plugins = ("tests.recorded_run",)


def pytest_configure() -> None:
    """Restore SIGINT, which a shell ignores in background commands and their children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Calibrations of tests are not stored in the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        if "NAS_CACHE" not in os.environ:
            patch.setenv("NAS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _unchecked_traces() -> Iterator[None]:
    """Shapes are not checked while fvcore traces a call, because a trace records such checks."""
    from nas.costs import profile

    counted = profile.count_calls

    def unchecked(*given: Any) -> Any:
        before = config.jaxtyping_disable
        config.update("jaxtyping_disable", True)
        try:
            return counted(*given)
        finally:
            config.update("jaxtyping_disable", before)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profile, "count_calls", unchecked)
        yield


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture
def restored_registries() -> Iterator[None]:
    """Registries, and the modules of plug-ins, are after a test as they were before it."""
    from nas.costs import COSTS
    from nas.exporting import EXPORTS
    from nas.genome.mechanisms import MECHANISMS
    from nas.genome.primitives.base import REGISTRY
    from nas.searching.algorithm import ALGORITHMS
    from nas.tasks import TASKS

    registries = (REGISTRY, MECHANISMS, COSTS, EXPORTS, ALGORITHMS, TASKS)
    before, modules = [dict(registry) for registry in registries], {*sys.modules}
    yield
    for registry, members in zip(registries, before, strict=True):
        registry._members = members  # type: ignore[assignment]
    for name in {*sys.modules} - modules:
        if name.startswith(("tests.", "my_plugin")):
            del sys.modules[name]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The browser that NAS_BROWSER names, which must exist, else the first of ``BROWSERS``.

    One fixture serves all tests, because a process can start playwright only once.
    """
    named = os.environ.get("NAS_BROWSER")
    program = next(filter(None, map(shutil.which, [named] if named else BROWSERS)), None)
    if program is None:
        assert not named, f"NAS_BROWSER names {named!r}, which is no program here"
        pytest.skip("no browser is installed (chromium)")
    if named:
        import playwright.sync_api as playwright
    else:
        playwright = pytest.importorskip("playwright.sync_api", reason="playwright is missing")
    with playwright.sync_playwright() as started:
        # A browser's own sandbox does not work for root, which containers often are.
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()
