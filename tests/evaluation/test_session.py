"""The training loop: what it makes of the images before the model sees them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nas.evaluation.session import _Part
from nas.tasks.backbone import patches
from nas.tasks.data import ImageData


def images(channels):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (20, channels, 8, 8), dtype=np.uint8)
    return ImageData(
        name="noise",
        classes=("a", "b"),
        train=pixels[:12],
        train_labels=np.arange(12) % 2,
        validation=pixels[12:],
        validation_labels=np.arange(8) % 2,
        mean=(120.3, 97.1, 140.9)[:channels],
        std=(61.7, 43.9, 71.3)[:channels],
        digest="",
    )


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", ["train", "validation"])
def test_part_normalises_patches_as_it_would_whole_images(channels, name):
    data, chosen = images(channels), torch.tensor([5, 0, 7])
    whole = torch.tensor(getattr(data, name))[chosen].float()
    mean, std = (torch.tensor(value).view(-1, 1, 1) for value in (data.mean, data.std))
    expected = patches((whole - mean) * (1.0 / std), 4)
    part = _Part(data, name, 4, torch.device("cpu"))
    assert torch.equal(part.normalised(chosen), expected)
    assert len(part) == len(getattr(data, name))
