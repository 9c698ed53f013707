"""What candidates are trained on: the task, its images, and the backbone with its slot.

Importing this package loads no torch; the backbone is imported where it is built.
"""

from nas.tasks.data import ImageData, LabelledImages, load_images, load_test
from nas.tasks.task import Task, TaskSizes, built_in_tasks, load_task

__all__ = [
    "ImageData",
    "Task",
    "TaskSizes",
    "LabelledImages",
    "built_in_tasks",
    "load_images",
    "load_task",
    "load_test",
]
