"""Training: a model of a task, step by step, on a processor core or a GPU.

`nas.evaluation` knows what a training is for, where it runs and how its result is recorded. This
package imports nothing by itself.
"""
