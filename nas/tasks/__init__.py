"""Tasks: the data, model, loss and metrics with which candidate mechanisms are trained.

Importing this package does not import torch; models are imported when they are built.
"""

from nas.tasks.base import TASKS, Data, Examples, ModelTask, Side, Task
from nas.tasks.loading import built_in_tasks, find_task, load_task, parse_task

__all__ = [
    "TASKS",
    "Data",
    "Examples",
    "ModelTask",
    "Side",
    "Task",
    "built_in_tasks",
    "find_task",
    "load_task",
    "parse_task",
]
