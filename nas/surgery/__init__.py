"""Surgery: change the attention of existing models."""

from nas.surgery.merging import factor, merge
from nas.surgery.swap import load_swapped, save_swapped, swap_attention

__all__ = ["factor", "load_swapped", "merge", "save_swapped", "swap_attention"]
