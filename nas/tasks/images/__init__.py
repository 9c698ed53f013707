"""The task family ``images``: classes of images, told apart by a small vision transformer.

- task.py: fields, metrics, loss
- data.py: where images come from; folder.py: folders of files; split.py: balanced draws
- examples.py: images on a device: cut, normalised, augmented
- model.py: the vision transformer
"""

from nas.tasks.images.task import ImageTask

__all__ = ["ImageTask"]
