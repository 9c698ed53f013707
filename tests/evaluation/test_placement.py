"""Workers on Ray with logical GPUs: no GPU is idle, whatever the cores and machines."""

from __future__ import annotations

import os
from collections import Counter
from itertools import product
from typing import Any

import pytest
import ray  # noqa: TID251 - clusters with GPUs that do not exist
from ray.cluster_utils import Cluster  # noqa: TID251

from nas.evaluation import ray_backend, ray_cluster, ray_worker
from nas.evaluation.execution import Execution, allocate

CLUSTERS = [[(6, 4)], [(2, 4)], [(64, 0), (16, 8)], [(4, 4), (12, 4)]]
"""Machines as pairs (cores, GPUs)."""


def places(machines: list[tuple[int, int]], execution: Execution) -> list[tuple[str, str]]:
    """Start the workers of a search; return each worker's machine and GPU."""

    class Placed:
        """Takes the place of a worker and answers where it is."""

        def prepare(self, *_: Any) -> tuple[str, str]:
            context = ray.get_runtime_context()
            return context.get_node_id(), os.environ["CUDA_VISIBLE_DEVICES"]

    cluster = Cluster()
    for cores, gpus in machines:
        cluster.add_node(num_cpus=cores, num_gpus=gpus, object_store_memory=10**8)
    ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        original, ray_worker.Worker = ray_worker.Worker, Placed  # type: ignore[misc]
        resources = allocate(execution, ray_cluster.machines())
        pool = ray_backend.ActorPool(None, None)
        started = [pool.start(each) for each in resources]
        return [ref.result(timeout=120) for _, ref in started]
    finally:
        ray_worker.Worker = original  # type: ignore[misc]
        ray.shutdown()
        cluster.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize(("machines", "workers"), [*product(CLUSTERS, [None, 5, "2:64"])], ids=str)
def test_every_gpu_has_workers(machines: list[tuple[int, int]], workers: Any) -> None:
    gpus = sum(gpus for _, gpus in machines)
    room = sum(max(pair) for pair in machines if pair[1])
    if room < (Execution(workers=workers).fewest or 0):
        pytest.skip("the machines have fewer cores")
    found = Counter(places(machines, Execution(workers=workers)))
    assert len(found) == min(gpus, found.total())
    asked = -(-workers // gpus) if isinstance(workers, int) else 0
    assert max(found.values()) <= max(4, asked)
    assert not isinstance(workers, int) or found.total() == workers
