"""What candidates are trained on: a task and its data, behind one boundary.

Importing this package loads no torch; a model is imported where it is built.
"""

from nas.tasks.base import TASKS, Batch, Data, Examples, MakeAttention, ModelTask, Side, Task
from nas.tasks.loading import built_in_tasks, load_task, parse_task

__all__ = [
    "TASKS",
    "Batch",
    "Data",
    "Examples",
    "MakeAttention",
    "ModelTask",
    "Side",
    "Task",
    "built_in_tasks",
    "load_task",
    "parse_task",
]
