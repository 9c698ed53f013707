"""Images: splits, digests, folders, errors, normalisation, augmentation, patches."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from nas.common.errors import DataError, NasWarning
from nas.evaluation.trainer import train_candidate
from nas.evaluation.trial import Trial
from nas.genome.mechanisms import mechanism
from nas.tasks import Data, load_task
from nas.tasks.images.data import read_images
from nas.tasks.images.model import ImageExamples, flip_and_shift, patches


def load(data="digits", **overrides):
    small = {"image_size": 8, "patch": 4, "train_images": 6, "validation_images": 4}
    return load_task("vit-cifar10", data=data, overrides=small | overrides).load()


def rows(images):
    return {image.tobytes() for image in images}


def load_folder(root, **overrides):
    return load(f"imagefolder:{root}", **overrides)


def test_digits_have_exact_moments():
    data = load(train_images=1000, validation_images=400)
    assert data.train["images"].shape == (1000, 1, 8, 8)
    assert data.validation["images"].shape == (400, 1, 8, 8)
    assert len(data.facts["classes"]) == 10
    assert np.ptp(np.bincount(data.validation["labels"])) == 0
    for array in (data.train["images"], data.validation["images"]):
        assert array.flags.c_contiguous
        assert array.dtype == np.uint8
    assert data.facts["mean"] == pytest.approx([data.train["images"].mean()])
    assert data.facts["std"] == pytest.approx([data.train["images"].std()])
    assert load(image_size=32).train["images"].shape[2:] == (32, 32)


def test_test_set_keeps_the_training_images():
    task = load_task("vit-cifar10", data="digits", overrides={"train_images": 128})
    own, test = task.load(), task.load_test()
    assert test.count("validation") == 359
    assert test.digest != own.digest
    assert (test.train["images"] == own.train["images"]).all()
    assert not rows(test.train["images"]) & rows(test.validation["images"])


def test_digest_depends_on_the_content():
    same = load().digest
    assert load(epochs=7).digest == same
    for other in ({"data_seed": 1}, {"train_images": 7}, {"image_size": 16}):
        assert load(**other).digest != same


def test_image_folder_pixels_equal_the_files(image_folder):
    root = image_folder()
    data = load_folder(root)
    assert data.facts["classes"] == ("cat", "dog")
    assert data.train["images"].shape == (6, 3, 8, 8)
    files = {
        np.asarray(Image.open(p)).transpose(2, 0, 1).tobytes() for p in root.glob("train/cat/*.png")
    }
    cats = data.train["labels"] == 0
    assert rows(data.train["images"][cats]) <= files


def test_image_folder_crops_the_middle_square_and_expands_grey(image_folder, tmp_path):
    root = image_folder(size=(24, 12))
    grey = root / "train" / "cat" / "0.png"
    Image.fromarray(np.full((5, 9), 77, np.uint8)).save(grey)
    assert np.all(read_images([grey], 8) == 77)
    assert load_folder(root).train["images"].shape == (6, 3, 8, 8)


@pytest.mark.parametrize(
    ("ruin", "words"),
    [
        (lambda train: shutil.rmtree(train.parent), "No such file or directory"),
        (lambda train: shutil.rmtree(train / "dog"), "found 1 folder; expected at least two"),
        (lambda train: [p.unlink() for p in (train / "dog").iterdir()], "found 0 files *.jpg"),
        (lambda train: [p.rename(p.with_suffix(".HEIC")) for p in (train / "dog").iterdir()],
         "found 0 files *.jpg and 6 others, such as 0.HEIC; expected at least 2"),
        (lambda train: [(train / c / "0.png").write_bytes(b"") for c in ("cat", "dog")],
         "cat/0.png: is empty or has no known format\n"),
        (lambda train: os.truncate(train / "cat" / "0.png", 60), "1 file of 12 cannot be read as"),
        (lambda train: (train / "cat" / "0.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n" * 9),
         "cannot be read as an image"),
    ],
)  # fmt: skip
def test_image_folder_reports_missing_and_damaged_files(image_folder, ruin, words):
    root = image_folder()
    ruin(root / "train")
    with pytest.raises(DataError) as error:
        load_folder(root, train_images=100, validation_images=100)
    assert words in str(error.value)
    assert str(root) in str(error.value)


def test_image_folder_reads_folders_of_classes_without_train_and_says_what_is_left_out(
    image_folder,
):
    root = image_folder()
    flat = (root / "train").rename(root.with_name("flat"))
    (flat / "cat" / "day").mkdir()
    (flat / "cat" / "0.png").rename(flat / "cat" / "0.broken")
    (flat / "cat" / "5.png").rename(flat / "cat" / "day" / "5.png")
    (flat / "cat" / "5.png").symlink_to(flat / "cat" / "day" / "5.png")
    with pytest.warns(NasWarning) as warned:
        data = load_folder(flat, train_images=100, validation_images=100)
    sentences = " ".join(str(warning.message) for warning in warned)
    assert "has no folder train; all its 2 folders are classes" in sentences
    assert "1 of 13 files are left out, such as cat/0.broken" in sentences
    assert len(data.train["labels"]) + len(data.validation["labels"]) == 12


def test_files_beside_the_classes_and_links_to_no_folder_are_left_out(image_folder):
    train = image_folder() / "train"
    (train / "cat" / "0.png").rename(train / "loose.png")
    (train / "horse").symlink_to(train / "moved")
    words = "2 of 13 files are left out, such as horse; expected .* in the folder of a class"
    with pytest.warns(NasWarning, match=words):
        assert load_folder(train.parent).facts["classes"] == ("cat", "dog")


def test_a_class_that_the_test_part_lacks_is_named(image_folder):
    root = image_folder()
    shutil.copytree(root / "train" / "cat", root / "test" / "cat")
    task = load_task("vit-cifar10", data=f"imagefolder:{root}")
    with pytest.raises(DataError, match="not those of training: dog"):
        task.load_test()


def test_cifar10_without_network_names_the_alternatives(monkeypatch):
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # the discard port: nobody answers
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(DataError, match=r"imagefolder:PATH.*--data digits"):
        load("cifar10")


@pytest.mark.data
@pytest.mark.skipif(not os.environ.get("NAS_DATA"), reason="NAS_DATA names no folder of images")
def test_default_task_separates_attention_from_uniform():
    root = Path(os.environ["NAS_DATA"]).expanduser()
    folder = root / "cifar10" if (root / "cifar10").is_dir() else root
    task = load_task("vit-cifar10", data=f"imagefolder:{folder}")
    images, scores = task.load(), {}
    for name in ("mha", "uniform"):
        trials = [Trial(name, mechanism(name).genome, seed) for seed in range(5)]
        done = [train_candidate(trial, task, images) for trial in trials]
        scores[name] = np.array([e.metrics["accuracy"] for e in done])
    gap = scores["mha"].mean() - scores["uniform"].mean()
    error = np.sqrt(sum(s.var(ddof=1) for s in scores.values()) / 5)
    assert gap >= 0.03
    assert gap >= 5 * error


@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
def test_images_that_pillow_would_clip_are_refused(tmp_path, dtype):
    path = tmp_path / "grey.tif"
    Image.fromarray(np.full((8, 8), 0.5, dtype)).save(path)
    with pytest.raises(DataError, match="expected 8 bits"):
        read_images([path], 8)


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
    side = ImageExamples(data, name, 4, torch.device("cpu"))
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
    side = ImageExamples(data, "train", 4, torch.device("cpu"), is_augmented=True)
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
