"""Seeds for the separate chances in one training, so that none of them moves another.

Backbone, mechanism, data order and noise each draw from a stream of their own, derived from the
training's one recorded seed, however many numbers each of them draws. (Training seeds themselves
derive from the mechanism too, so that no two mechanisms share a lucky start.)
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
    """Within, torch's global generators start at ``seed``; afterwards they are as they were.

    Those of GPUs too, where this process sees any: dropout draws on the device.
    """
    devices: range = range(0)
    if torch.cuda.is_available():
        torch.cuda.init()  # type: ignore[no-untyped-call]
        devices = range(torch.cuda.device_count())
    with torch.random.fork_rng(devices=devices):
        torch.default_generator.manual_seed(seed)
        for device in devices:
            torch.cuda.default_generators[device].manual_seed(seed)
        yield
