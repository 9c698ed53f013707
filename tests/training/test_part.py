"""Images on the device: what is made of them before the model sees them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nas.tasks.backbone import patches
from nas.tasks.data import ImageData
from nas.training import part as room
from nas.training.part import Part, flip_and_shift, part_of

CPU = torch.device("cpu")


def images(channels, size=8):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (20, channels, size, size), dtype=np.uint8)
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


def normalised(data, name, chosen):
    whole = torch.tensor(getattr(data, name))[chosen].float()
    mean, std = (torch.tensor(value).view(-1, 1, 1) for value in (data.mean, data.std))
    return (whole - mean) * (1.0 / std)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", ["train", "validation"])
def test_part_normalises_patches_as_it_would_whole_images(channels, name):
    data, chosen = images(channels), torch.tensor([5, 0, 7])
    part = Part(data, name, 4, CPU)
    assert torch.equal(part.batch(chosen), patches(normalised(data, name, chosen), 4))
    assert len(part) == len(getattr(data, name))


def ways(image, most):
    """All that may become of a normalised image: mirrored or not, and moved into zeros."""
    _, height, width = image.shape
    for mirrored in (image, image.flip(-1)):
        wide = torch.nn.functional.pad(mirrored, (most,) * 4)
        for down in range(2 * most + 1):
            for across in range(2 * most + 1):
                yield wide[:, down : down + height, across : across + width]


@pytest.mark.parametrize("channels", [1, 3])
def test_part_augmented_gives_each_image_one_of_its_mirrored_and_moved_forms(channels):
    data, chosen = images(channels, size=16), torch.tensor([5, 0, 5, 5, 9])
    part = Part(data, "train", 4, CPU, is_augmented=True)
    torch.manual_seed(0)
    found = part.batch(chosen)
    for image, cut in zip(normalised(data, "train", chosen), found, strict=True):
        forms = (patches(form[None], 4)[0] for form in ways(image, most=2))
        assert sum(torch.equal(cut, form) for form in forms) == 1
    assert not torch.equal(found[0], found[2])  # images are drawn for one by one


def test_flip_and_shift_draws_every_form_equally_often():
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


def test_flip_and_shift_of_small_images_only_mirrors():
    pixels = torch.arange(4 * 16, dtype=torch.uint8).view(4, 1, 4, 4)
    torch.manual_seed(1)
    moved, is_inside = flip_and_shift(pixels)
    assert is_inside.all()
    for before, after in zip(pixels, moved, strict=True):
        assert torch.equal(after, before) or torch.equal(after, before.flip(-1))


def test_flip_and_shift_repeats_itself_under_a_seed():
    pixels = torch.arange(2 * 3 * 64).view(2, 3, 8, 8)
    drawn = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        drawn.append(flip_and_shift(pixels.repeat(8, 1, 1, 1))[0])
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_batches_are_the_same_normalised_beforehand_or_each_time(dtype, monkeypatch):
    data = images(3)
    before = Part(data, "train", 4, CPU, dtype=dtype)
    monkeypatch.setattr(room, "MOST_BYTES", 0)
    each_time = Part(data, "train", 4, CPU, dtype=dtype)
    assert (before.is_normalised, each_time.is_normalised) == (True, False)
    chosen = torch.tensor([3, 0, 5])
    assert before.batch(chosen).dtype == dtype
    assert torch.equal(before.batch(chosen), each_time.batch(chosen))


def test_a_process_keeps_the_images_that_it_trains_on():
    data = images(3)

    def one(name, **options):
        return part_of(data, name, 4, CPU, **{"precision": "float32", **options})

    train, held_out = one("train"), one("validation")
    assert one("train") is train
    assert one("validation") is held_out
    assert one("train", precision="bfloat16") is not train
    assert one("train", is_augmented=True).is_augmented
    assert one("train") is not train  # the last two alone are kept
