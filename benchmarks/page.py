"""Measure HTML reports of 10,000 and 100,000 mechanisms: time to write, load and hover."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, Final

from benchmarks.big_run import record_big_run
from benchmarks.figures import Figure, fastest, single
from nas.report.page import write_report

SIZES: Final = (10_000, 100_000)
ROUNDS: Final = 3
# Milliseconds of a pointer event at 400 places of the chart, including layout of the tooltip.
POINT: Final = """() => {
  const chart = document.querySelector(".chart svg");
  const { left, top, width, height } = chart.getBoundingClientRect();
  return Array.from({ length: 400 }, (_, i) => {
    const at = { clientX: left + ((i % 20) * width) / 20, clientY: top + (i / 400) * height };
    const began = performance.now();
    chart.dispatchEvent(new PointerEvent("pointermove", at));
    return performance.now() - began;
  });
}"""


def page(options: argparse.Namespace) -> list[Figure]:
    """Return the time to write each report, its size, and its times in a browser."""
    print(f"\nreports by number of mechanisms, best of {ROUNDS} rounds")
    print(
        f"{'mechanisms':>10}{'written s':>11}{'MB':>7}{'ready ms':>10}{'hover ms':>10}{'worst':>7}"
    )
    figures = []
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            run, path = record_big_run(Path(folder), size), Path(folder) / "page.html"
            written = [_written(run, path) for _ in range(ROUNDS)]
            megabytes = path.stat().st_size / 1e6
            opened = [_opened(path) for _ in range(ROUNDS)]
        ready, hover = min(o[0] for o in opened), min(o[1] for o in opened)
        worst = min(o[2] for o in opened)
        row = f"{size:10,}{min(written):11.2f}{megabytes:7.2f}"
        print(f"{row}{ready:10.0f}{hover:10.1f}{worst:7.1f}")
        figures += [
            fastest(f"page of {size:,}, written", written, "s"),
            single(f"page of {size:,}, size", megabytes, "MB"),
            fastest(f"page of {size:,}, ready", [o[0] for o in opened], "ms"),
            fastest(f"page of {size:,}, hover", [o[1] for o in opened], "ms"),
        ]
    return figures


def _written(run: Path, path: Path) -> float:
    start = process_time()
    write_report(run, path)
    return process_time() - start


def _opened(path: Path) -> tuple[float, float, float]:
    """Return milliseconds until all views are ready, and median and maximum of a hover."""
    from playwright.sync_api import sync_playwright

    program = shutil.which(os.environ.get("NAS_BROWSER", "chromium"))
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page: Any = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]", state="attached", timeout=60_000)
        ready = float(page.evaluate("document.documentElement.dataset.ready"))
        page.locator(".chart svg").scroll_into_view_if_needed()
        hovers = page.evaluate(POINT)
        browser.close()
    return ready, median(hovers), max(hovers)
