"""Evaluation: what one training of one candidate gives, and who carries the training out.

`record` holds the vocabulary (Evaluation, Job, OBJECTIVES, Evaluator) and imports no torch, so
that reading a run stays quick. `trainer` trains one candidate; `local` and `ray_backend` hand jobs
to it. Import from the module you need: this package imports nothing by itself.
"""
