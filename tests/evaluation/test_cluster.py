"""A real cluster of several nodes on this machine: different nodes, killed nodes, a killed head."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import ray  # noqa: TID251 - a cluster with a low limit of memory

from benchmarks.chaos import (
    ROOT,
    Site,
    outcome,
    run_undisturbed,
    run_with_kills,
    search,
    start_command,
)
from nas.evaluation.execution import Execution
from nas.evaluation.ray_backend import RayEvaluator
from nas.evaluation.trainer import budget_of
from nas.evaluation.trial import Evaluation, Incident, Trial, run_trials
from nas.store import open_run
from nas.tasks import Data, Task
from tests.evaluation.conftest import MakeTrials
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
execution = Execution(
    workers="1:2", gpus_per_worker=0, ray_address=sys.argv[1], start_seconds=60.0
)
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
    (error,), lines = drive(site, tmp_path)
    (sentence,) = (line for line in lines if line.startswith("the machine "))
    assert sentence.endswith(" cannot train: ImportError: no library here.")
    assert f"no worker started within 60 s: the cluster may be busy; {sentence}" in error
    site.add()
    out, err = drive(site, tmp_path)
    assert out == [f"{n} ok None" for n in range(6)]
    refusals = [line for line in err if not line.startswith("no worker for 30 s")]
    assert refusals in ([], [sentence])  # once, if that node was tried at all


def test_killed_and_joining_nodes_do_not_change_the_result(site: Site, tmp_path: Path) -> None:
    """If the head is killed, Ray ends the command after a minute, and the run can be resumed."""
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
    assert driver.returncode != 0
    assert "GCS may have been killed" in err
    assert "Traceback" not in err
    resumed = start_command(tmp_path, "resume beheaded --backend local")
    resumed.communicate(timeout=300)
    assert resumed.returncode == 0
    assert outcome(tmp_path / "runs" / "beheaded") == expected


def attempts(folder: Path, key: str) -> int:
    return len(list(folder.glob(f"{key}-*")))


def train_with(folder: Path, fault: Callable[[str, int], None]) -> Callable[..., Evaluation]:
    """A training that calls ``fault`` with the trial's key and the number of the attempt, from 1.

    Ray sends it by value, because workers cannot import a test.
    """

    def train(trial: Trial, task: Task, data: Data, **_: Any) -> Evaluation:
        number = len(list(folder.glob(f"{trial.key}-*"))) + 1
        (folder / f"{trial.key}-{number}").touch()
        fault(trial.key, number)
        budget = budget_of(task, data)
        return Evaluation("ok", None, {"accuracy": 0.5}, (), trial.seed, budget, 0, 0, 0, "")

    return train


def test_the_loss_of_a_machine_is_not_counted(
    site: Site, tmp_path: Path, task: Task, data: Data, trials_named: MakeTrials
) -> None:
    """Two lost processes would fail the trial."""

    def fault(key: str, number: int) -> None:
        time.sleep(1000 * (key == "long" and number < 4))

    site.nodes = [site.add()]
    execution = Execution(workers=1, gpus_per_worker=0, ray_address=site.address)
    train, incidents, found = train_with(tmp_path, fault), list[Incident](), dict[str, str]()
    with closing(RayEvaluator(task, data, execution, train=train)) as evaluator:
        evaluator.on_incident = incidents.append
        pairs = run_trials(evaluator, trials_named("long", "short"))
        waits = threading.Thread(target=lambda: found.update((t.key, e.status) for t, e in pairs))
        waits.start()
        for number in (1, 2, 3):
            while attempts(tmp_path, "long") < number:
                assert waits.is_alive()
                time.sleep(0.2)
            site.nodes.append(site.add())
            site.kill(site.nodes.pop(0))
        waits.join()
    assert found == {"long": "ok", "short": "ok"}
    assert attempts(tmp_path, "short") == 1
    assert [(i.kind, i.key) for i in incidents if i.kind != "waiting"] == [("node", "long")] * 3


def test_killed_processes_and_memory_are_retried_once_alone(
    tmp_path: Path, task: Task, data: Data, trials_named: MakeTrials
) -> None:
    """Ray ends the process that uses most memory once less than a limit is left."""

    def fault(key: str, number: int) -> None:
        if key == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        blocks = []
        while key == "memory" or (key == "memory once" and number == 1):
            blocks.append(b"x" * 10**8)
            time.sleep(0.02)

    lines = Path("/proc/meminfo").read_text().splitlines()
    sizes = {line.split(":")[0]: 1024 * int(line.split()[1]) for line in lines}
    used = 1 - (sizes["MemAvailable"] - 4e9) / sizes["MemTotal"]
    monitor = {"memory_usage_threshold": used, "memory_monitor_refresh_ms": 100}
    ray.init("local", num_cpus=2, include_dashboard=False, _system_config=monitor)
    keys = ("sound0", "killed", "memory", "memory once", "sound1")
    execution, train = Execution(workers=2), train_with(tmp_path, fault)
    try:
        with closing(RayEvaluator(task, data, execution, train=train)) as evaluator:
            found = {t.key: e for t, e in run_trials(evaluator, trials_named(*keys))}
    finally:
        ray.shutdown()
    failed = {key: evaluation.reason for key, evaluation in found.items() if not evaluation.is_ok}
    assert failed == {"killed": "worker_lost", "memory": "out_of_memory"}
    assert [attempts(tmp_path, key) for key in keys] == [1, 2, 2, 2, 1]
    assert "lost twice: Worker unexpectedly exits" in str(found["killed"].error)
    assert "low on memory" in str(found["memory"].error)
