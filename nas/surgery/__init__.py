"""Surgery: change the attention of models that exist already."""

from nas.surgery.factor import factor
from nas.surgery.merge import merge
from nas.surgery.swap import swap_attention

__all__ = ["factor", "merge", "swap_attention"]
