"""Compare a search on a Ray cluster whose nodes are killed with an undisturbed search.

All nodes are on this machine: a head without cores and three nodes with one core each. A node is
killed without notice: its raylet receives SIGKILL, as after a power cut. Then another node joins.
The undisturbed search runs in one process. Both must record the same trainings, results and front.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.rows import Row
from nas.store import open_run

NODES: Final = 3
PROGRAM: Final = (sys.executable, "-c", "import nas.cli; nas.cli.main()")
ROOT: Final = Path(__file__).resolve().parents[1]
TASK: Final = """
name: tiny
kind: images
data: digits
width: 32
epochs: 4
train_images: 600
validation_images: 200
image_size: 16
"""


class Site:
    """A Ray cluster on this machine; the caller closes it."""

    def __init__(self, nodes: int = NODES) -> None:
        from ray.cluster_utils import Cluster  # noqa: TID251 - to kill its nodes

        os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - spelling of Ray
        self._cluster = Cluster()
        self._cluster.add_node(num_cpus=0, include_dashboard=False)
        self.address = self._cluster.address
        self.nodes = [self.add() for _ in range(nodes)]

    def add(self, **options: Any) -> Any:
        """Add a node with one core."""
        return self._cluster.add_node(num_cpus=1, **options)

    def kill(self, node: Any) -> None:
        """Kill a node without notice."""
        self._cluster.remove_node(node, allow_graceful=False)

    def kill_head(self) -> None:
        """Kill the head's service without notice; the head's raylet lives on."""
        self._cluster.head_node.kill_gcs_server(check_alive=False)

    def close(self) -> None:
        """Shut the cluster down."""
        self._cluster.shutdown()


def start_command(folder: Path, command: str, *options: str) -> subprocess.Popen[str]:
    """Start a `nas` command in a folder; its output is captured."""
    (folder / "tiny.yaml").write_text(TASK)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*PROGRAM, *command.split(), *options],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def search(generations: int, run: str) -> str:
    """Return the command line of the search."""
    return (
        f"search --space quickstart --task tiny.yaml --gens {generations} --pop 12 --lag 12 "
        f"--run {run}"
    )


def outcome(run: Path) -> dict[str, Any]:
    """Return results of a run that must not depend on workers or times."""
    with open_run(run) as opened:
        trainings = [(t.key, t.repeat, t.evaluation) for t in opened.trainings()]
        return {
            "trainings": {(k, r): (e.status, e.reason, e.metrics) for k, r, e in trainings},
            "front": [(member.digest, member.objectives) for member in opened.front()],
        }


def incidents(run: Path) -> Counter[str]:
    """Return the number of recorded failures of workers and machines, by kind."""
    with open_run(run) as opened:
        return Counter(incident.kind for incident in opened.incidents())


def num_done(run: Path) -> int:
    """Return the number of trainings that a run has recorded."""
    if not run.exists():
        return 0
    with open_run(run) as opened:
        return len(opened.trainings())


def run_undisturbed(folder: Path, generations: int) -> dict[str, Any]:
    """Run the search on one worker in one process; return its results."""
    process = start_command(folder, search(generations, "calm"), "--backend", "local")
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    return outcome(folder / "runs" / "calm")


def run_with_kills(
    site: Site, folder: Path, generations: int, kills: int, period: float
) -> tuple[int, float]:
    """Run the search on a cluster and kill its oldest node repeatedly.

    The next kill follows after ``period`` seconds, and not before another training has ended.

    Returns:
        Number of kills, and seconds of the search.
    """
    start, killed, seen = time.monotonic(), 0, 0
    driver = start_command(
        folder, search(generations, "fire"), "--ray-address", site.address, "--workers", "1:4"
    )
    while driver.poll() is None:
        try:
            driver.wait(timeout=period)
        except subprocess.TimeoutExpired:
            if killed < kills and (done := num_done(folder / "runs" / "fire")) > seen:
                site.kill(site.nodes.pop(0))
                site.nodes.append(site.add())
                killed, seen = killed + 1, done
    _, errors = driver.communicate()
    assert driver.returncode == 0, errors
    return killed, time.monotonic() - start


def chaos(options: argparse.Namespace) -> Iterator[Row]:
    """Yield the number of trainings lost, repeated or changed by kills of nodes."""
    with TemporaryDirectory() as name, closing(Site()) as site:
        folder = Path(name)
        start = time.monotonic()
        expected = run_undisturbed(folder, options.gens)
        calm_seconds = time.monotonic() - start
        kills, seconds = run_with_kills(site, folder, options.gens, options.kills, options.period)
        run = folder / "runs" / "fire"
        results, failures = outcome(run), incidents(run)
    trainings = results["trainings"]
    different = [n for n, r in trainings.items() if expected["trainings"].get(n) != r]
    values = {
        "nodes killed": kills,
        "trainings recorded": len(trainings),
        "missing, compared with the undisturbed run": len(expected["trainings"].keys() - trainings),
        "with a different result": len(different),
        "failed": sum(status == "failed" for status, *_ in trainings.values()),
        "restarted after the loss of a node": failures["node"],
        "restarted after another failure": sum(failures[k] for k in ("process", "memory")),
        "members of the front": len(results["front"]),
        "fronts that differ": int(results["front"] != expected["front"]),
        "seconds undisturbed, in one process": calm_seconds,
        "seconds with kills": seconds,
    }
    yield from ({"": name, "number": value} for name, value in values.items())
