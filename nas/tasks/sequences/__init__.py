"""Task families on tokens: three synthetic ones, bytes of a text, and classes of texts.

They separate what images of some dozens of tokens do not: a mechanism that cannot look a token up
by its content, or tell positions apart, does not learn these.
"""

from nas.tasks.sequences.language import BytesTask
from nas.tasks.sequences.synthetic import CopyingTask, InductionTask, RecallTask
from nas.tasks.sequences.texts import TextsTask

__all__ = ["BytesTask", "CopyingTask", "InductionTask", "RecallTask", "TextsTask"]
