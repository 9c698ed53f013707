"""Surgery: change the attention of models that exist already."""

from nas.surgery.factor import factor
from nas.surgery.files import load_swapped, save_swapped
from nas.surgery.merge import merge
from nas.surgery.preview import preview_swap
from nas.surgery.swap import swap_attention

__all__ = [
    "factor",
    "load_swapped",
    "merge",
    "preview_swap",
    "save_swapped",
    "swap_attention",
]
