"""Images for a task: in memory, decoded, class-balanced, validation held out of training.

``cifar10`` is downloaded once by torchvision, ``imagefolder:PATH`` is anybody's, ``digits`` are
the 1,797 handwritten digits that scikit-learn carries. A search sees the training part of each
alone, cut into training and validation images; the test part is read where somebody asks for it.

The only module that knows torchvision.
"""

from __future__ import annotations

import hashlib
import socket
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from nas.common.errors import DataError
from nas.tasks.base import Data
from nas.tasks.images import folder
from nas.tasks.images.split import draw_two

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

DIGITS_TEST_SHARE: Final = 0.2
NETWORK_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True)
class _Source:
    """A part of a data set: its labels, and a way to get the pixels of some of it."""

    classes: tuple[str, ...]
    labels: NDArray[np.int64]
    read: Callable[[NDArray[np.int64]], NDArray[np.uint8]]


def load_images(
    spec: str, size: int, counts: tuple[int, int], seed: int, *, is_tested: bool = False
) -> Data:
    """Training and validation images, both from the data's training part.

    Args:
        spec: ``cifar10``, ``digits`` or ``imagefolder:PATH``.
        size: edge length that they are brought to.
        counts: how many to train on and how many to judge by.
        seed: of the draw.
        is_tested: the whole test part takes the place of the validation images.

    Returns:
        Columns ``images`` (n, channels, size, size) of bytes and ``labels`` (n,); as facts the
        ``classes`` by label, and ``mean`` and ``std`` of each channel over the training images, in
        units of a pixel's value.

    Raises:
        DataError: the data are missing, damaged, of one class, or cannot be downloaded.
    """
    source = _source(spec, size)
    chosen = draw_two(source.labels, *counts, np.random.default_rng(seed))
    pixels = np.split(source.read(np.concatenate(chosen)), [len(chosen[0])])
    sides: list[dict[str, NDArray[np.generic]]] = [
        {"images": images, "labels": source.labels[own]}
        for images, own in zip(pixels, chosen, strict=True)
    ]
    train, validation = sides
    if is_tested:
        test = _source(spec, size, is_test=True)
        if test.classes != source.classes:
            raise DataError(f"{spec}: the classes of its test part are not those of training.")
        order = np.random.default_rng(0).permutation(len(test.labels))
        validation = {"images": test.read(order), "labels": test.labels[order]}
    mean, std = _moments(pixels[0])
    digest = _digest(source.classes, *train.values(), *validation.values())
    facts = {"classes": source.classes, "mean": mean, "std": std}
    return Data(spec, train, validation, digest, facts)


def _moments(images: NDArray[np.uint8]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel."""
    # One pass over 256 counts, exact, in place of a float copy of every image.
    counts = [np.bincount(channel.ravel(), minlength=256) for channel in images.swapaxes(0, 1)]
    values = np.arange(256)
    mean = [float(c @ values / c.sum()) for c in counts]
    var = [float(c @ (values - m) ** 2 / c.sum()) for c, m in zip(counts, mean, strict=True)]
    # A black channel stays finite.
    return tuple(mean), tuple(max(v**0.5, 1.0) for v in var)


def _digest(classes: tuple[str, ...], *arrays: NDArray[np.generic]) -> str:
    digest = hashlib.blake2b(repr(classes).encode(), digest_size=8)
    for array in arrays:
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _source(spec: str, size: int, *, is_test: bool = False) -> _Source:
    kind, _, path = spec.partition(":")
    if kind == "imagefolder":
        return _folder(_expanded(path), size, is_test=is_test)
    return {"cifar10": _cifar10, "digits": _digits}[kind](size, is_test=is_test)


def _expanded(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise DataError(f"{path}: there is no such user or home folder.") from None


def _folder(root: Path, size: int, *, is_test: bool) -> _Source:
    classes, images = folder.list_images(root, folder.TEST if is_test else folder.TRAIN)
    paths = [path for own in images for path in own]
    labels = np.repeat(np.arange(len(classes)), [len(own) for own in images]).astype(np.int64)

    def read(chosen: NDArray[np.int64]) -> NDArray[np.uint8]:
        return folder.read_images([paths[index] for index in chosen], size)

    return _Source(classes, labels, read)


def _digits(size: int, *, is_test: bool) -> _Source:
    from sklearn.datasets import load_digits

    digits = load_digits()
    labels = digits.target.astype(np.int64)
    num_test = round(len(labels) * DIGITS_TEST_SHARE)
    # The test part is the same whatever the task's seed.
    parts = draw_two(labels, len(labels) - num_test, num_test, np.random.default_rng(0))
    own = np.sort(parts[is_test])
    pixels = np.round(digits.images[own] * (255 / 16)).astype(np.uint8)
    classes = tuple(str(name) for name in digits.target_names)
    return _Source(classes, labels[own], lambda chosen: _scaled(pixels[chosen], size))


def _cifar10(size: int, *, is_test: bool) -> _Source:
    from torchvision.datasets import CIFAR10

    root = folder.cache_folder() / "cifar10"
    try:
        with _patient():
            dataset = CIFAR10(root=root, train=not is_test, download=True)
    # torchvision reports a broken archive as RuntimeError; a network error is an OSError.
    except (OSError, RuntimeError, EOFError) as error:
        raise DataError(
            f"CIFAR-10 is not in {root} and cannot be downloaded ({error}); use --data "
            "imagefolder:PATH for images of your own (train/, with a folder for each class) "
            "or --data digits, which needs no network."
        ) from None
    labels = np.asarray(dataset.targets, dtype=np.int64)
    pixels = dataset.data
    return _Source(tuple(dataset.classes), labels, lambda chosen: _scaled(pixels[chosen], size))


@contextmanager
def _patient() -> Iterator[None]:
    """Wait for a silent network, but not for ever."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(NETWORK_TIMEOUT_S)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _scaled(images: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Images (n, h, w) or (n, h, w, 3) as (n, channels, size, size)."""
    from PIL import Image

    return np.stack([folder.to_pixels(Image.fromarray(image), size) for image in images])
