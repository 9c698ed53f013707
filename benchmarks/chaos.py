"""A search on a real Ray cluster whose nodes are killed one after the other, beside a calm one.

All nodes are on this machine: a head without cores and three with a core each. A node is killed as
a power cut does it (its raylet, without notice), and another one joins. The calm search runs in one
process. Both must record the same trainings with the same results, and the same front.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.figures import Figure
from nas.store import front, open_run

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
    """A Ray cluster on this machine, to be closed."""

    def __init__(self, nodes: int = NODES) -> None:
        from ray.cluster_utils import Cluster  # noqa: TID251 - what is killed here

        os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - Ray's own spelling
        self._cluster = Cluster()
        self._cluster.add_node(num_cpus=0, include_dashboard=False)
        self.address = self._cluster.address
        self.nodes = [self.add() for _ in range(nodes)]

    def add(self, **options: Any) -> Any:
        """Have one more node with a core."""
        return self._cluster.add_node(num_cpus=1, **options)

    def kill(self, node: Any) -> None:
        """End a node without notice."""
        self._cluster.remove_node(node, allow_graceful=False)

    def kill_head(self) -> None:
        """End the head without notice."""
        self._cluster.head_node.kill_all_processes(
            check_alive=False, allow_graceful=False, wait=True
        )

    def close(self) -> None:
        """End all of it."""
        self._cluster.shutdown()


def started(folder: Path, command: str, *options: str) -> subprocess.Popen[str]:
    """A `nas` command in a folder, whose output is to be read."""
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
    """The command line of the search that is begun calmly and otherwise."""
    return (
        f"search --space quickstart --task tiny.yaml --gens {generations} --pop 12 --lag 12 "
        f"--run {run}"
    )


def outcome(run: Path) -> dict[str, Any]:
    """What a run found, as far as it may not depend on who trained what and when."""
    with open_run(run) as opened:
        trained = [(t.key, t.repeat) for t in opened.trainings()]
        return {
            "trainings": {name: (e.status, e.reason, e.metrics) for name, e in trained.items()},
            "front": [(member.digest, member.objectives) for member in front(opened)],
        }


def incidents(run: Path) -> Counter[str]:
    """How often what befell machines, in the record."""
    with open_run(run) as opened:
        return Counter(incident.kind for incident in opened.incidents())


def num_done(run: Path) -> int:
    """Trainings that a run has recorded so far."""
    if not run.exists():
        return 0
    with open_run(run) as opened:
        return len(opened.trainings())


def calm(folder: Path, generations: int) -> dict[str, Any]:
    """The search on one worker in its own process."""
    done = started(folder, search(generations, "calm"), "--backend", "local")
    _, said = done.communicate()
    assert done.returncode == 0, said
    return outcome(folder / "runs" / "calm")


def under_fire(
    site: Site, folder: Path, generations: int, kills: int, period: float
) -> tuple[int, float]:
    """The search on a cluster that loses its oldest node now and then; kills, and its seconds.

    The next kill is so many seconds later, and not before another training has ended.
    """
    begun, killed, seen = time.monotonic(), 0, 0
    driver = started(
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
    _, said = driver.communicate()
    assert driver.returncode == 0, said
    return killed, time.monotonic() - begun


def chaos(options: argparse.Namespace) -> list[Figure]:
    """What a search lost to nodes that were killed."""
    with TemporaryDirectory() as name, closing(Site()) as site:
        folder = Path(name)
        begun = time.monotonic()
        expected = calm(folder, options.gens)
        alone = time.monotonic() - begun
        kills, seconds = under_fire(site, folder, options.gens, options.kills, options.period)
        run = folder / "runs" / "fire"
        found, befell = outcome(run), incidents(run)
    trainings = found["trainings"]
    wrong = sum(expected["trainings"].get(name) != one for name, one in trainings.items())
    failed = sum(status == "failed" for status, *_ in trainings.values())
    facts = {
        "nodes killed": kills,
        "trainings recorded": len(trainings),
        "lost, of those of the calm run": len(expected["trainings"].keys() - trainings.keys()),
        "whose result is another": wrong,
        "that failed": failed,
        "begun again, their node was lost": befell["node"],
        "begun again for another cause": befell["process"] + befell["memory"] + befell["error"],
        "members of the front": len(found["front"]),
        "fronts that differ": float(found["front"] != expected["front"]),
    }
    figures = [Figure(name, value, "", value, value) for name, value in facts.items()]
    for text, value in (("calm, in one process", alone), ("under fire", seconds)):
        figures.append(Figure(f"seconds {text}", value, "s", value, value))
    return figures
