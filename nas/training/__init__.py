"""Training: train a model of a task on a processor core or a GPU.

`nas.evaluation` calls this package; it assigns trainings to workers and turns their results into
evaluations. Import from the module you need: this package imports nothing by itself.
"""
