"""Evaluation: train a candidate and evaluate it, in this process or on workers.

    trial.py           the types Trial, Evaluation, Training and Evaluator; imports no torch
    trainer.py         trains one candidate; its errors become failed evaluations
    execution.py       the options of workers, and the resources of each worker
    backends.py        chooses the evaluator of a backend
    local.py           the evaluator that trains in this process
    dispatch.py        assigns trials to workers
    ray_backend.py     the evaluator on Ray
    ray_cluster.py     joins or starts the cluster of Ray
    ray_worker.py      the workers on Ray
    journal.py         records trainings in a file, and returns trainings that it contains
    study.py           trains mechanisms, each with several seeds

Import from the module you need: this package imports nothing by itself.
"""
