"""The task family ``images``: image classification by a small vision transformer."""

from nas.tasks.images.task import ImageTask

__all__ = ["ImageTask"]
