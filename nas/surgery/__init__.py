"""Surgery: change the attention of existing models."""

from nas.surgery.merging import merge
from nas.surgery.swap import swap_attention

__all__ = ["merge", "swap_attention"]
