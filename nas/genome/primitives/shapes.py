"""Annotations of tensor shapes; b is the batch, h the heads.

Tests check the shapes at every call; exported files use ``Tensor`` instead.
"""

from __future__ import annotations

from typing import Final

from jaxtyping import Bool, Float
from torch import Tensor

Tokens = Float[Tensor, "b h n w"]
Query = Float[Tensor, "b h q w"]
Key = Float[Tensor, "b h k w"]
Values = Float[Tensor, "b h k v"]
Scores = Float[Tensor, "b h q k"]  # and weights, of each pair of query and key
Sums = Float[Tensor, "b h q v"]  # of values, for each query
Mask = Bool[Tensor, "..."] | None  # see masks.py

PLAIN: Final = dict.fromkeys(("Tokens", "Query", "Key", "Values", "Scores", "Sums"), "Tensor")
PLAIN["Mask"] = "Tensor | None"
