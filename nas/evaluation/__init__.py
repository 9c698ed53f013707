"""Evaluation: train a candidate and evaluate it, in this process or on workers.

    trial.py           the types: Trial, Report, Evaluation, Evaluator; without torch
    trainer.py         trains one candidate; its errors become failed evaluations
    execution.py       workers and their resources; backends.py: chooses the backend
    local.py           the backend in this process
    dispatch.py        assigns trials to workers; pool.py: the protocol of worker pools
    ray_backend.py     the backend on Ray; ray_actors.py: its workers; handshake.py: their checks
    journal.py         records trainings in a file and returns recorded ones
    study.py           trains mechanisms, each with several seeds

Import from the module you need: this package imports nothing by itself.
"""
