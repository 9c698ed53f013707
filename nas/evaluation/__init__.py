"""Evaluation: train a candidate and evaluate it, in this process or on workers.

    trial.py           the types Trial, Evaluation, Training and Evaluator; imports no torch
    trainer.py         trains one candidate; its errors become failed evaluations
    execution.py       workers and their resources; chooses the evaluator
    local.py           the evaluator that trains in this process
    dispatch.py        assigns trials to workers; pool.py: the protocol of worker pools
    ray_backend.py     the evaluator on Ray; ray_worker.py: its workers
    journal.py         records trainings in a file and returns recorded ones
    study.py           trains mechanisms, each with several seeds

Import from the module you need: this package imports nothing by itself.
"""
