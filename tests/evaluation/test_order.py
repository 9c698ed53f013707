"""Longest first: what is likely to take longer begins earlier, and nothing else changes."""

from __future__ import annotations

from nas.evaluation.order import expected_work, grouped, longest_first
from nas.evaluation.record import Job
from nas.sources import load_genome
from nas.tasks import load_task

TASK = load_task("vit-cifar10")


def job(source: str, seed: int = 0) -> Job:
    return Job(source, load_genome(source), seed)


def test_order_is_that_of_measured_times() -> None:
    """Core-seconds of one training under vit-cifar10, as README has them: 4 to 67."""
    measured = ["additive", "qana", "mha", "xsqa"]
    jobs = [job(name) for name in reversed(measured)]
    assert [j.key for j in longest_first(jobs, TASK)] == measured


def test_one_layer_is_less_than_all() -> None:
    everywhere, first = job("additive"), job("additive:placement=first")
    assert expected_work(everywhere, TASK) == 2 * expected_work(first, TASK)


def test_equals_keep_their_order() -> None:
    jobs = [job("mha", seed) for seed in range(4)]
    assert longest_first(jobs, TASK) == jobs


def test_what_does_not_exist_at_this_size_is_no_work() -> None:
    odd = TASK.model_copy(update={"heads": 2, "width": 64})
    assert expected_work(job("lsqa"), odd) == 0


def test_seeds_of_a_genome_are_grouped_in_the_order_of_the_first() -> None:
    genome = load_genome("mha")
    jobs = [Job(key, genome, seed) for seed in (1, 2, 3) for key in ("a", "b")]
    found = [[(job.key, job.seed) for job in group] for group in grouped(jobs, 2)]
    assert found == [[("a", 1), ("a", 2)], [("a", 3)], [("b", 1), ("b", 2)], [("b", 3)]]
    assert grouped(jobs[:2], 1) == [(jobs[0],), (jobs[1],)]
