"""Annotations of tensor shapes, with b for batch, h for heads, q for queries, k for keys.

Tests check the shapes at every call. Exported files have ``Tensor`` in place of these names.
"""

from __future__ import annotations

from typing import Final

from jaxtyping import Bool, Float
from torch import Tensor

Tokens = Float[Tensor, "b h n w"]
Query = Float[Tensor, "b h q w"]
Key = Float[Tensor, "b h k w"]
Values = Float[Tensor, "b h k v"]
Scores = Float[Tensor, "b h q k"]  # scores or weights
Sums = Float[Tensor, "b h q v"]  # weighted sums of values
Gates = Float[Tensor, "b h n g"]  # g is 1, or the width of a head
QueryGates = Float[Tensor, "b h q g"]
KeyGates = Float[Tensor, "b h k g"]
# True where attention is allowed, broadcastable to (b, h, q, k); None if all keys are visible.
Mask = Bool[Tensor, "..."] | None

_NAMES: Final = "Tokens Query Key Values Scores Sums Gates QueryGates KeyGates"
PLAIN: Final = dict.fromkeys(_NAMES.split(), "Tensor")
PLAIN["Mask"] = "Tensor | None"
