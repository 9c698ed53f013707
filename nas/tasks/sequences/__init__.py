"""Task families on tokens: three synthetic ones, bytes of a text, and classes of texts.

These tasks separate mechanisms that images of some dozens of tokens do not separate: a mechanism
that cannot look up a token by its content, or cannot distinguish positions, does not learn them.
"""

from nas.tasks.sequences.language import BytesTask
from nas.tasks.sequences.synthetic import CopyingTask, InductionTask, RecallTask
from nas.tasks.sequences.texts import TextsTask

__all__ = ["BytesTask", "CopyingTask", "InductionTask", "RecallTask", "TextsTask"]
