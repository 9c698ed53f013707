"""Seeds of the independent random streams in a training.

Backbone, mechanism, data order and noise have separate streams, derived from the training's
recorded seed; the number of draws from one stream does not change another. (In a search, the
training seed derives from the mechanism too, so that no two mechanisms share an initialisation.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def derive_seed(seed: int, purpose: str) -> int:
    """The seed of one purpose, 0 <= seed < 2**63; equal on every machine."""
    text = f"nas seed 1|{seed}|{purpose}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's global generators, including those of GPUs; restore them afterwards."""
    devices: range = range(0)
    if torch.cuda.is_available():
        torch.cuda.init()  # type: ignore[no-untyped-call]
        devices = range(torch.cuda.device_count())
    with torch.random.fork_rng(devices=devices):
        torch.default_generator.manual_seed(seed)
        for device in devices:
            torch.cuda.default_generators[device].manual_seed(seed)
        yield
