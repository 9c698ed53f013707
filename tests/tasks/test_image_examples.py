"""Images on a device: normalisation, augmentation, patches."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nas.tasks import Data
from nas.tasks.images.model import ImageExamples, flip_and_shift, patches

CPU = torch.device("cpu")


def images(channels, size=8):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (20, channels, size, size), dtype=np.uint8)
    facts = {"mean": (120.3, 97.1, 140.9)[:channels], "std": (61.7, 43.9, 71.3)[:channels]}
    return Data(
        "noise",
        {"images": pixels[:12], "labels": np.arange(12) % 2},
        {"images": pixels[12:], "labels": np.arange(8) % 2},
        digest="",
        facts=facts,
    )


def normalised(data, name, chosen):
    whole = torch.tensor(getattr(data, name)["images"])[chosen].float()
    mean, std = (
        torch.tensor(value).view(-1, 1, 1) for value in (data.facts["mean"], data.facts["std"])
    )
    return (whole - mean) * (1.0 / std)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", ["train", "validation"])
def test_batches_equal_patches_of_normalised_images(channels, name):
    data, chosen = images(channels), torch.tensor([5, 0, 7])
    side = ImageExamples(data, name, 4, CPU)
    cut, labels = side.batch(chosen)
    assert torch.equal(cut, patches(normalised(data, name, chosen), 4))
    assert labels.tolist() == [1, 0, 1]
    assert len(side) == data.count(name)


def ways(image, most):
    """All augmented forms of a normalised image: mirrored or not, shifted into zeros."""
    _, height, width = image.shape
    for mirrored in (image, image.flip(-1)):
        wide = torch.nn.functional.pad(mirrored, (most,) * 4)
        for down in range(2 * most + 1):
            for across in range(2 * most + 1):
                yield wide[:, down : down + height, across : across + width]


@pytest.mark.parametrize("channels", [1, 3])
def test_augmented_images_are_mirrored_and_shifted(channels):
    data, chosen = images(channels, size=16), torch.tensor([5, 0, 5, 5, 9])
    side = ImageExamples(data, "train", 4, CPU, is_augmented=True)
    torch.manual_seed(0)
    found, _ = side.batch(chosen)
    for image, cut in zip(normalised(data, "train", chosen), found, strict=True):
        forms = (patches(form[None], 4)[0] for form in ways(image, most=2))
        assert sum(torch.equal(cut, form) for form in forms) == 1
    assert not torch.equal(found[0], found[2])  # images are drawn for one by one


def test_flip_and_shift_is_uniform():
    corner = torch.zeros(6000, 1, 8, 8, dtype=torch.uint8)
    corner[:, :, 2, 3] = 1
    torch.manual_seed(0)
    moved, is_inside = flip_and_shift(corner)
    places = (moved * is_inside).flatten(1).argmax(1)
    counts = torch.bincount(places, minlength=64)
    # Three rows; columns 2 to 4 as it was, 3 to 5 mirrored: two of the four are both.
    assert (counts > 0).sum() == 3 * 4
    by_column = counts.view(8, 8).sum(0)[2:6] / 6000
    assert by_column.tolist() == pytest.approx([1 / 6, 1 / 3, 1 / 3, 1 / 6], abs=0.03)
