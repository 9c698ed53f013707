"""The options of a genome beside its graph and placement: projections and visibility, with sizes.

Labels are fractions of a model's sizes; ``head_count`` and ``key_width`` return the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field, GetPydanticSchema, StrictBool, StrictInt
from pydantic_core.core_schema import literal_schema

MAX_WINDOW: Final = 2**20
FLAGS: Final = ("has_wq", "has_wk", "has_wv", "has_wo")
LABELS: Final[Mapping[str, tuple[str, ...]]] = {
    "q_heads": ("all", "3/4", "1/2", "1/4", "1/8", "one"),
    "kv_heads": ("all", "3/4", "1/2", "1/4", "1/8", "one"),
    "qk_dim": ("all", "3/4", "1/2", "1/4"),
    "raw": ("slice", "shared"),
    "merge": ("concat", "sum"),
}


def _one_of(words: Sequence[str]) -> GetPydanticSchema:
    # mypy would refuse a ``str`` in a field of type ``Literal``.
    return GetPydanticSchema(lambda source, handler: literal_schema(list(words)))


HeadLabel = Annotated[str, _one_of(LABELS["q_heads"])]
Window = Annotated[StrictInt, Field(ge=1, le=MAX_WINDOW)] | None
GlobalTokens = Annotated[StrictInt, Field(ge=0, le=MAX_WINDOW)]


@dataclass(frozen=True, slots=True)
class Projections:
    """The linear maps before and after a genome's nodes, as labels that hold at every model size.

    Attributes:
        has_wq, has_wk, has_wv, has_wo: whether a stream is a linear projection of the attention
            block's input, and whether the output is projected.
        q_heads, kv_heads: heads of queries, and of keys and values, as fractions of the backbone's.
        qk_dim: width of projected queries and keys, as a fraction of the head width.
        raw: form of a stream without projection: the input cut into heads ("slice"), or the whole
            input for every head ("shared").
        merge: whether head outputs are concatenated ("concat") or summed ("sum").
    """

    has_wq: StrictBool = True
    has_wk: StrictBool = True
    has_wv: StrictBool = True
    has_wo: StrictBool = True
    q_heads: HeadLabel = "all"
    kv_heads: HeadLabel = "all"
    qk_dim: Annotated[str, _one_of(LABELS["qk_dim"])] = "all"
    raw: Annotated[str, _one_of(LABELS["raw"])] = "slice"
    merge: Annotated[str, _one_of(LABELS["merge"])] = "concat"

    def has_projection(self, stream: str) -> bool:
        """Return whether the stream ``q``, ``k`` or ``v`` is projected."""
        return {"q": self.has_wq, "k": self.has_wk, "v": self.has_wv}[stream]


@dataclass(frozen=True, slots=True)
class Visibility:
    """The mask of a mechanism: which keys each query may see.

    With a window of w tokens, query i sees key j if |i - j| <= w // 2. In a call with
    ``is_causal=True``, query i sees key j if 0 <= i - j < w (Sparse Query Attention, sections 2.5
    and 6); a causal ``attn_mask`` only hides the keys after query i, so that w // 2 + 1 tokens
    remain. The first ``global_tokens`` tokens see every key and are seen by every query (Beltagy et
    al. 2020, section 3.1).
    """

    window: Window = None
    global_tokens: GlobalTokens = 0


def head_count(label: str, whole: int) -> int:
    """Return the heads of a label, 6 for "3/4" of 8, at least 1; raise ValueError if not whole."""
    if label in ("all", "one"):
        return whole if label == "all" else 1
    top, bottom = (int(part) for part in label.split("/"))
    if top * whole < bottom:
        return 1
    if top * whole % bottom:
        raise ValueError(f"{label} of {whole} heads is no whole number; expected heads that divide")
    return top * whole // bottom


def key_width(label: str, head_dim: int) -> int:
    """Return the key width for a width label, such as 32 for "1/2" of a head width of 64.

    Fractions of the head width are rounded to an even number, and are at least 2.
    """
    if label == "all" or head_dim < 2:
        return head_dim
    top, bottom = (int(part) for part in label.split("/"))
    return max(2, 2 * round(top * head_dim / (2 * bottom)))
