"""Evaluation: what one training of one candidate gives, and who carries the training out.

    trial.py           the vocabulary: Trial, Report, Evaluation, Evaluator; without torch
    trainer.py         trains one candidate, and keeps its faults from the run
    local.py           in this process
    dispatch.py        on workers: the rules; pool.py: what these are; patience.py: time limits
    ray_backend.py     on Ray; ray_actors.py: its workers; handshake.py: what each must have
    share.py           how many workers there are, and what each one has
    backends.py        chooses one of them by name
    journal.py         answers from a file what was trained before
    study.py           trains given mechanisms, each with several seeds

Import from the module you need: this package imports nothing by itself.
"""
