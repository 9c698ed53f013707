"""The task family ``images``: classes of images, told apart by a small vision transformer."""

from nas.tasks.images.task import ImageTask

__all__ = ["ImageTask"]
