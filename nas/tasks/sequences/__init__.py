"""Task families on tokens: three made from a seed, bytes of a text, and classes of texts.

What images of some dozens of tokens cannot tell apart lies far apart here: a mechanism that cannot
look a token up by its content, or know one place from another, does not learn these.
"""

from nas.tasks.sequences.language import BytesTask
from nas.tasks.sequences.synthetic import CopyingTask, InductionTask, RecallTask
from nas.tasks.sequences.texts import TextsTask

__all__ = ["BytesTask", "CopyingTask", "InductionTask", "RecallTask", "TextsTask"]
