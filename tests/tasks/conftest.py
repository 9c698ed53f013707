"""Generated image folders, and a cache directory for each test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("NAS_CACHE", str(folder))
    return folder


@pytest.fixture
def image_folder(tmp_path: Path) -> Callable[..., Path]:
    """Write PATH/train/<class>/<n>.png: coloured noise from a fixed seed."""

    def make(
        classes: tuple[str, ...] = ("cat", "dog"), *, count: int = 6, size: tuple[int, int] = (8, 8)
    ) -> Path:
        rng = np.random.default_rng(0)
        root = tmp_path / "images"
        for name in classes:
            folder = root / "train" / name
            folder.mkdir(parents=True)
            for index in range(count):
                pixels = rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{index}.png")
        return root

    return make
