"""Images in memory: splits, digests, folders, the cache, and what bad data are told."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nas.errors import DataError
from nas.tasks import load_images, load_task, load_test
from nas.tasks.folder import cache_folder, read_images


def task(**overrides):
    small = {"image_size": 8, "patch": 4, "train_images": 6, "validation_images": 4}
    return load_task("vit-cifar10", data="digits", overrides=small | overrides)


def rows(images):
    return {image.tobytes() for image in images}


def load_folder(root, **overrides):
    return load_images(f"imagefolder:{root}", task(**overrides))


def test_digits_are_cut_into_three_disjoint_parts():
    asked = task(train_images=1000, validation_images=400)
    data, test = load_images("digits", asked), load_test("digits", asked)
    assert data.train.shape == (1000, 1, 8, 8)
    assert data.validation.shape == (400, 1, 8, 8)
    assert test.images.shape == (359, 1, 8, 8)
    assert not rows(data.train) & rows(data.validation)
    assert not rows(test.images) & (rows(data.train) | rows(data.validation))
    assert data.num_classes == 10
    assert np.ptp(np.bincount(data.validation_labels)) == 0


def test_digits_fewer_than_asked_are_shared_in_proportion():
    data = load_images("digits", task(train_images=30_000, validation_images=10_000))
    assert len(data.train) + len(data.validation) == 1797 - 359
    assert len(data.validation) == round((1797 - 359) / 4)


def test_digits_are_enlarged_to_the_size_asked_for():
    data = load_images("digits", task(image_size=32))
    assert data.train.shape[2:] == (32, 32)
    assert data.train.max() > 250


def test_image_data_are_contiguous_with_exact_moments():
    data = load_images("digits", task(train_images=500))
    for array in (data.train, data.validation):
        assert array.flags.c_contiguous
        assert array.dtype == np.uint8
    assert data.mean == pytest.approx([data.train.mean()])
    assert data.std == pytest.approx([data.train.std()])


def test_digest_follows_the_content():
    same = load_images("digits", task()).digest
    assert load_images("digits", task(epochs=7)).digest == same
    for other in ({"data_seed": 1}, {"train_images": 7}, {"image_size": 16}):
        assert load_images("digits", task(**other)).digest != same


@pytest.mark.parametrize("test_name", ["test", "val"])
def test_image_folder_is_read_as_written(image_folder, test_name):
    root = image_folder(test_name=test_name)
    data = load_folder(root)
    assert data.classes == ("cat", "dog")
    assert data.train.shape == (6, 3, 8, 8)
    files = {
        split: [
            np.asarray(Image.open(p)).transpose(2, 0, 1).tobytes()
            for p in root.glob(f"{split}/cat/*.png")
        ]
        for split in ("train", test_name)
    }
    assert rows(data.train[data.train_labels == 0]) <= set(files["train"])
    test = load_test(f"imagefolder:{root}", task())
    assert rows(test.images[test.labels == 0]) == set(files[test_name])


def test_image_folder_takes_the_middle_square_and_greys_as_colours(image_folder, tmp_path):
    root = image_folder(size=(24, 12))
    grey = root / "train" / "cat" / "0.png"
    Image.fromarray(np.full((5, 9), 77, np.uint8)).save(grey)
    assert np.all(read_images([grey], 8) == 77)
    assert load_folder(root).train.shape == (6, 3, 8, 8)


def test_image_folder_second_start_decodes_nothing(image_folder, cache):
    root = image_folder()
    first = load_folder(root)
    for path in root.rglob("*.png"):
        state = path.stat()
        path.write_bytes(b"\0" * state.st_size)  # no longer an image, unchanged to the listing
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert load_folder(root).digest == first.digest
    assert len(list(cache.iterdir())) == 1


def test_image_folder_changed_images_are_decoded_anew(image_folder):
    root = image_folder()
    first = load_folder(root)
    for path in root.rglob("*.png"):
        Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(path)
        os.utime(path, ns=(0, 0))
    assert load_folder(root).digest != first.digest


def test_image_folder_a_broken_cache_is_made_anew(image_folder, cache):
    root = image_folder()
    first = load_folder(root)
    for path in cache.iterdir():
        path.write_bytes(b"broken")
    assert load_folder(root).digest == first.digest


def test_image_folder_works_without_a_cache(image_folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NAS_CACHE", str(tmp_path / "file" / "below"))
    assert len(load_folder(image_folder()).train) == 6


def damage(root):
    for path in (root / "train" / "cat").iterdir():
        path.write_bytes(path.read_bytes()[:60])


def empty_class(root):
    shutil.rmtree(root / "train" / "dog")
    (root / "train" / "dog").mkdir()


def empty_train(root):
    shutil.rmtree(root / "train")
    (root / "train").mkdir()


@pytest.mark.parametrize(
    ("ruin", "words"),
    [
        (shutil.rmtree, "there is no such folder"),
        (lambda root: shutil.rmtree(root / "train"), "holds no folder train/"),
        (lambda root: shutil.rmtree(root / "test"), "holds no folder test/ or val/"),
        (empty_train, "holds no folders"),
        (lambda root: shutil.rmtree(root / "train" / "dog"), "holds one class, 'cat'"),
        (empty_class, "holds no images"),
        (lambda root: shutil.rmtree(root / "test" / "dog"), "lacks the class 'dog'"),
        (lambda root: (root / "test" / "eel").mkdir(), "has the unknown class 'eel'"),
        (damage, "cannot be read as an image"),
    ],
)
def test_image_folder_says_what_is_wrong(image_folder, ruin, words):
    root = image_folder()
    ruin(root)
    with pytest.raises(DataError) as error:
        load_folder(root)
    assert words in str(error.value)
    assert str(root) in str(error.value)


def test_image_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="is a file"):
        load_folder(tmp_path / "file")


def test_cifar10_without_network_names_the_alternatives(monkeypatch):
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # the discard port: nobody answers
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(DataError, match=r"imagefolder:PATH.*--data digits"):
        load_images("cifar10", task())


def test_cache_folder_has_a_place_of_its_own(monkeypatch):
    monkeypatch.delenv("NAS_CACHE")
    assert cache_folder() == Path.home() / ".cache" / "nas"


@pytest.mark.data
def test_real_cifar10_is_decoded_once(cifar10, monkeypatch):
    asked = load_task("vit-cifar10", data=f"imagefolder:{cifar10}")
    first = load_images(asked.data, asked)
    monkeypatch.delattr("PIL.Image.open")  # what would decode once more now fails
    again = load_images(asked.data, asked)
    assert again.digest == first.digest
    assert first.train.shape == (asked.train_images, 3, 32, 32)
    assert len(first.validation) == asked.validation_images
