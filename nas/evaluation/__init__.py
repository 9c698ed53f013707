"""Evaluation: one training of one candidate, and the backends that carry trainings out.

    trial.py           the types: Trial, Report, Evaluation, Evaluator; without torch
    trainer.py         trains one candidate; its faults become failed evaluations
    execution.py       workers and their resources; backends.py: chooses the backend
    local.py           the backend in this process
    dispatch.py        the rules for many workers; pool.py: the protocol of workers
    ray_backend.py     the backend on Ray; ray_actors.py: its workers; handshake.py: their checks
    journal.py         answers from a file of recorded trainings
    study.py           trains given mechanisms, each with several seeds

Import from the module you need: this package imports nothing by itself.
"""
