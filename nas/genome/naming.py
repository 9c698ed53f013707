"""Names of finds from their parts, such as ``uniform-softmax_sink-ff01``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from nas.genome.genome import Genome

WORDS: Final = 2
DIGITS: Final = 4
STANDARD: Final = frozenset({"scaled_dot_product", "softmax", "weighted_sum"})
COMMON: Final = frozenset({"difference", "elu", "gelu", "head_norm", "relu", "rms_norm", "silu"})


def find_name(genome: Genome, digest: str, length: int = DIGITS) -> str:
    """Return a name of a mechanism: two operations that ``mha`` does not have, and its digest.

    Common activations and norms are named only if there is no other operation.
    """
    operations = [*dict.fromkeys(node.op for node in genome.nodes if node.op not in STANDARD)]
    rare = [op for op in operations if op not in COMMON]
    words = (rare or operations or ["attention"])[:WORDS]
    return "-".join([*words, digest[:length]])


def digits_needed(digests: Iterable[str]) -> int:
    """Return the number of initial characters that distinguish all digests, at least ``DIGITS``."""
    distinct, length = {*digests}, DIGITS
    while len({digest[:length] for digest in distinct}) < len(distinct):
        length += 1
    return length
