"""Task families on tokens: three synthetic families, bytes of a text, and classes of texts.

A mechanism that cannot look up a token by its content, or cannot distinguish positions, does not
learn these tasks. Such a mechanism may still do well on images of some dozens of patches.
"""

from nas.tasks.sequences.language import BytesTask
from nas.tasks.sequences.synthetic import CopyingTask, InductionTask, RecallTask
from nas.tasks.sequences.texts import TextsTask

__all__ = ["BytesTask", "CopyingTask", "InductionTask", "RecallTask", "TextsTask"]
