"""Load images into memory, and split them into class-balanced training and validation images.

Three data sets are supported. ``cifar10`` is downloaded once by torchvision. ``digits`` are the
1,797 handwritten digits of scikit-learn. ``imagefolder:PATH`` is a folder of the user, with one
subfolder for each class: PATH/train/<class>/*.jpg, and optionally PATH/test/ or PATH/val/; or
PATH/<class>/*.jpg. A search uses only the training part of a data set, from which training and
validation images are drawn. No other module imports torchvision.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from nas.common.errors import DataError
from nas.common.text import plural
from nas.tasks.base import Data
from nas.tasks.files import check_classes, list_classes

DIGITS_TEST_FRACTION: Final = 0.2
SUFFIXES: Final = (
    ".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff"
)  # fmt: skip
FORMATS: Final = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "PPM", "TIFF")  # not PostScript, a program


def cache_folder() -> Path:
    """Return the directory of downloaded data: $NAS_CACHE, or ~/.cache/nas."""
    return Path(os.environ.get("NAS_CACHE") or "~/.cache/nas").expanduser()


Source: TypeAlias = tuple[
    tuple[str, ...], NDArray[np.int64], Callable[[NDArray[np.int64]], NDArray[np.uint8]]
]
"""A part of a data set: names of classes by label, labels, and a function from indices to images,
shape (n, channels, size, size)."""


def load_images(
    spec: str, size: int, counts: tuple[int, int], seed: int, *, is_tested: bool = False
) -> Data:
    """Return training and validation images, drawn from the training part of a data set.

    ``counts`` are the numbers of both, and ``seed`` is that of the split. If ``is_tested``, the
    whole test part of the data set replaces the validation images.

    The columns are ``images`` (n, channels, size, size), uint8, and ``labels`` (n,). The facts are
    the ``classes`` by label, and ``mean`` and ``std`` of each channel's pixel values over the
    training images. DataError is raised if the data are missing or damaged, have only one class, or
    cannot be downloaded.
    """
    classes, labels, read = _source(spec, size)
    first, second = draw_two(labels, *counts, np.random.default_rng(seed))
    images, held_out = np.split(read(np.concatenate([first, second])), [len(first)])
    train: dict[str, NDArray[Any]] = {"images": images, "labels": labels[first]}
    validation: dict[str, NDArray[Any]] = {"images": held_out, "labels": labels[second]}
    if is_tested:
        test_classes, test_labels, read = _source(spec, size, is_test=True)
        check_classes(spec, classes, test_classes)
        order = np.random.default_rng(0).permutation(len(test_labels))
        validation = {"images": read(order), "labels": test_labels[order]}
    digest = hashlib.blake2b(repr(classes).encode(), digest_size=8)
    for array in (*train.values(), *validation.values()):
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    mean, std = _moments(images)
    facts = {"classes": classes, "mean": mean, "std": std}
    return Data(spec, train, validation, digest.hexdigest(), facts)


def _moments(images: NDArray[np.uint8]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    # Sums over counts of the 256 values are more exact than sums over all pixels.
    counts = [np.bincount(channel.ravel(), minlength=256) for channel in images.swapaxes(0, 1)]
    values = np.arange(256)
    mean = [float(c @ values / c.sum()) for c in counts]
    var = [float(c @ (values - m) ** 2 / c.sum()) for c, m in zip(counts, mean, strict=True)]
    # The lower bound keeps a black channel finite.
    return tuple(mean), tuple(max(v**0.5, 1.0) for v in var)


def _source(spec: str, size: int, *, is_test: bool = False) -> Source:
    kind, _, path = spec.partition(":")
    if kind == "imagefolder":
        return _folder(Path(path).expanduser(), size, is_test=is_test)
    return {"cifar10": _cifar10, "digits": _digits}[kind](size, is_test=is_test)


def _folder(root: Path, size: int, *, is_test: bool) -> Source:
    classes, images = list_classes(root, SUFFIXES, is_test=is_test, least=2)
    paths = [path for of_class in images for path in of_class]
    labels = np.repeat(np.arange(len(classes)), list(map(len, images))).astype(np.int64)
    return classes, labels, lambda chosen: read_images([paths[i] for i in chosen], size)


def read_images(paths: Sequence[Path], size: int) -> NDArray[np.uint8]:
    """Return the middle squares of image files, scaled to shape (n, 3, size, size).

    Images that cannot be read, or whose pixels have more than 8 bits, raise DataError.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        decoded = list(pool.map(partial(_decode, size=size), paths))
    if damaged := [text for text in decoded if isinstance(text, str)]:
        raise DataError(
            f"{plural(len(damaged), 'file')} of {len(paths):,} cannot be read as an image; replace "
            "them, or rename them to *.broken to leave them out:\n" + "\n".join(damaged)
        )
    return np.stack([pixels for pixels in decoded if not isinstance(pixels, str)])


def _decode(path: Path, size: int) -> NDArray[np.uint8] | str:
    """Return the pixels of an image as its orientation in EXIF shows it, or why there are none."""
    try:
        with Image.open(path, formats=FORMATS) as image:
            if image.mode[0] in "IF":  # Pillow would clip their values
                raise ValueError(f"its pixels have the mode {image.mode}; expected 8 bits")
            image.draft("RGB", (size, size))  # decodes a large JPEG at a fraction of its size
            return _to_pixels(ImageOps.exif_transpose(image).convert("RGB"), size)
    except UnidentifiedImageError:
        return f"{path}: is empty or has no known format"
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        return f"{path}: {error}"


def _to_pixels(image: Image.Image, size: int) -> NDArray[np.uint8]:
    """Return the middle square of an image, scaled to shape (channels, size, size)."""
    if image.size != (size, size):
        image = ImageOps.fit(image, (size, size), Image.Resampling.BILINEAR)
    return np.atleast_3d(np.asarray(image)).transpose(2, 0, 1)


def _digits(size: int, *, is_test: bool) -> Source:
    from sklearn.datasets import load_digits

    digits = load_digits()
    labels = digits.target.astype(np.int64)
    num_test = round(len(labels) * DIGITS_TEST_FRACTION)
    # The test part does not depend on the task's seed.
    parts = draw_two(labels, len(labels) - num_test, num_test, np.random.default_rng(0))
    indices = np.sort(parts[is_test])
    pixels = np.round(digits.images[indices] * (255 / 16)).astype(np.uint8)
    classes = tuple(str(name) for name in digits.target_names)
    return classes, labels[indices], lambda chosen: _scaled(pixels[chosen], size)


def _cifar10(size: int, *, is_test: bool) -> Source:
    from torchvision.datasets import CIFAR10

    root = cache_folder() / "cifar10"
    try:
        dataset = CIFAR10(root=root, train=not is_test, download=True)
    # torchvision reports a broken archive as RuntimeError; a network error is an OSError.
    except (OSError, RuntimeError, EOFError) as error:
        raise DataError(
            f"CIFAR-10 is not in {root} and cannot be downloaded ({error}); use --data "
            "imagefolder:PATH for images of your own (train/, with a folder for each class) "
            "or --data digits, which needs no network."
        ) from None
    labels = np.asarray(dataset.targets, dtype=np.int64)
    return tuple(dataset.classes), labels, lambda chosen: _scaled(dataset.data[chosen], size)


def _scaled(images: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Return images (n, h, w) or (n, h, w, 3), scaled to (n, channels, size, size)."""
    return np.stack([_to_pixels(Image.fromarray(image), size) for image in images])


def draw_two(
    labels: NDArray[np.int64], first: int, second: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return indices of two disjoint, class-balanced parts of the items.

    The parts have about ``first`` and ``second`` items. The classes alternate in both, so that the
    first k items of a part are balanced for each k. If there are fewer items than requested, all
    are drawn, and both parts are smaller in proportion. If each class has enough items, the second
    part does not depend on the size of the first part. ``labels`` has two or more items.
    """
    shuffled = rng.permutation(len(labels))
    interleaved = shuffled[np.lexsort((labels[shuffled], _ranks(labels[shuffled])))]
    order = interleaved[: first + second]
    size = round(second * len(order) / (first + second))
    quotas = _quotas(labels[order], min(max(size, 1), len(order) - 1))
    in_second = _ranks(labels[order]) < quotas[labels[order]]
    return order[~in_second], order[in_second]


def _ranks(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each item the number of earlier items of the same class."""
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], labels[order])
    ranks = np.empty_like(labels)
    ranks[order] = np.arange(len(labels)) - starts
    return ranks


def _quotas(labels: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return a number of items of each class, proportional to its size; one at least is left."""
    counts = np.bincount(labels)
    spare = np.maximum(counts - 1, 0)
    most = spare if spare.sum() >= size else counts
    exact = counts * (size / len(labels))
    quotas: NDArray[np.int64] = np.minimum(np.floor(exact).astype(np.int64), most)
    while missing := size - int(quotas.sum()):
        takers = np.flatnonzero(quotas < most)
        by_remainder = takers[np.argsort((quotas - exact)[takers], kind="stable")]
        quotas[by_remainder[:missing]] += 1
    return quotas
