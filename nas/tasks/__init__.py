"""What candidates are trained on: a task and its data, behind one boundary.

    base.py            what a task of any family is
    loading.py         from YAML to a task
    classification.py  loss and metrics of families whose models choose a class
    layers.py          transformer layers with a slot for attention; seeds.py: who draws what
    images/            classes of images, by a small vision transformer
    recall.py          associative recall on synthetic tokens; recall_model.py: its model

Importing this package loads no torch; a model is imported where it is built.
"""

from nas.tasks.base import TASKS, Batch, Data, Examples, MakeAttention, Side, Task
from nas.tasks.loading import built_in_tasks, load_task, parse_task

__all__ = [
    "TASKS",
    "Batch",
    "Data",
    "Examples",
    "MakeAttention",
    "Side",
    "Task",
    "built_in_tasks",
    "load_task",
    "parse_task",
]
