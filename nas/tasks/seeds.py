"""Seeds for the separate chances in one training, so that none of them moves another.

Backbone, mechanism, data order and noise each draw from a stream of their own, derived from the
training's one recorded seed: two mechanisms trained under one seed start from the same backbone
and see the same images in the same order, however many numbers each of them draws.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


def derive_seed(seed: int, purpose: str) -> int:
    """A seed for one purpose, 0 <= seed < 2**63; the same for the same two arguments everywhere."""
    text = f"nas seed 1|{seed}|{purpose}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within, torch's global CPU generator starts at ``seed``; afterwards it is as it was."""
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which would also move the generators of every GPU.
        torch.default_generator.manual_seed(seed)
        yield
