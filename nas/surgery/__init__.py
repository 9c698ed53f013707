"""Surgery: change the attention of existing models."""

from nas.surgery.factor import factor
from nas.surgery.files import load_swapped, save_swapped
from nas.surgery.merge import merge
from nas.surgery.swap import preview_swap, swap_attention

__all__ = ["factor", "load_swapped", "merge", "preview_swap", "save_swapped", "swap_attention"]
