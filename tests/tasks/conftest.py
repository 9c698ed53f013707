"""Generated image folders, and a cache directory for each test."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("NAS_CACHE", str(folder))
    return folder


@pytest.fixture
def image_folder(tmp_path: Path) -> Callable[..., Path]:
    """Write PATH/train/<class>/<n>.png: coloured noise from a fixed seed."""

    def make(
        classes: tuple[str, ...] = ("cat", "dog"),
        *,
        count: int = 6,
        size: tuple[int, int] = (8, 8),
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


@pytest.fixture
def cifar10() -> Path:
    """The real images, as folders of JPEGs."""
    root = Path(os.environ.get("NAS_DATA", "")).expanduser()
    found = root / "cifar10" if (root / "cifar10").is_dir() else root
    if not os.environ.get("NAS_DATA") or not (found / "train").is_dir():
        pytest.skip("NAS_DATA names no folder with train/ and test/")
    return found
