"""A real cluster of several nodes on this machine: different nodes, killed nodes, a killed head."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.chaos import (
    ROOT,
    Site,
    outcome,
    run_undisturbed,
    run_with_kills,
    search,
    start_command,
)
from nas.store import open_run
from tests.evaluation.test_ray_worker import write_plugin

pytestmark = pytest.mark.slow

# A plug-in that no path of a worker leads to; the cluster is joined by its address, as by `nas`.
DRIVER = """
import os, sys
sys.path.insert(0, sys.argv[2])
import my_plugin_parts.scaled
from nas import Genome
from nas.common.errors import NasError
from nas.genome.canonical import canonicalise
from nas.evaluation.ray_backend import RayEvaluator
from nas.evaluation.execution import Execution
from nas.evaluation.trial import Trial, run_trials
from nas.tasks import load_task

genome = Genome.from_dict({"graph_def": [
    {"op": "scaled_dot_product", "inputs": ["q", "k"]},
    {"op": "softmax", "inputs": [0]},
    {"op": "weighted_sum", "inputs": [1, "v"]},
    {"op": "scaled", "inputs": [2]}]})
task = load_task("recall", overrides={"train_examples": 64, "validation_examples": 64,
                                      "epochs": 1, "width": 16})
execution = Execution(workers="1:2", gpus_per_worker=0, ray_address=sys.argv[1])
evaluator = RayEvaluator(task, task.load(), execution)
try:
    trials = [Trial(str(n), canonicalise(genome), n) for n in range(6)]
    for trial, found in run_trials(evaluator, trials):
        print(trial.key, found.status, found.error)
except NasError as error:
    print(error)
finally:
    evaluator.close()
"""


@pytest.fixture
def site() -> Iterator[Site]:
    with closing(Site(nodes=0)) as made:
        yield made


def drive(site: Site, folder: Path) -> tuple[list[str], list[str]]:
    """The lines that the driver prints, on both streams."""
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, site.address, str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return sorted(done.stdout.splitlines()), done.stderr.splitlines()


def test_plugins_are_sent_and_a_node_that_cannot_import_them_is_named(
    site: Site, tmp_path: Path
) -> None:
    write_plugin(tmp_path)
    site.add(env_vars={"NO_SUCH_LIBRARY": "1"})
    (sentence,), _ = drive(site, tmp_path)
    assert sentence.startswith("the machine ")
    assert sentence.endswith(" cannot train: ImportError: no library here.")
    site.add()
    out, err = drive(site, tmp_path)
    assert out == [f"{n} ok None" for n in range(6)]
    assert err in ([], [sentence])  # once, if that node was tried at all


def test_killed_and_joining_nodes_do_not_change_the_result(site: Site, tmp_path: Path) -> None:
    """If the head is killed, the command ends with an error, and the run can be resumed."""
    expected = run_undisturbed(tmp_path, 2)
    site.nodes = [site.add(), site.add()]
    kills, _ = run_with_kills(site, tmp_path, 2, kills=2, period=2.0)
    assert outcome(tmp_path / "runs" / "fire") == expected
    assert kills == 2
    with open_run(tmp_path / "runs" / "fire") as run:  # a starting worker may be lost with a node
        assert {i.kind for i in run.incidents() if i.key} == {"node"}

    driver = start_command(tmp_path, search(2, "beheaded"), "--ray-address", site.address)
    while driver.poll() is None and not (tmp_path / "runs" / "beheaded").exists():
        with pytest.raises(subprocess.TimeoutExpired):
            driver.wait(timeout=0.5)
    site.kill_head()
    _, err = driver.communicate(timeout=120)
    assert driver.returncode == 2
    assert err.splitlines()[-1].startswith("nas: the head of the Ray cluster at ")
    assert "Traceback" not in err
    resumed = start_command(tmp_path, "resume beheaded --backend local")
    resumed.communicate(timeout=300)
    assert resumed.returncode == 0
    assert outcome(tmp_path / "runs" / "beheaded") == expected
