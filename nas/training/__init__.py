"""Training: a model of a task, step by step, on a processor core or a GPU.

What a training is for, who carries it out and how its result is recorded, nas.evaluation knows.
This package imports nothing by itself.
"""
