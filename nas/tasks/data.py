"""Images for a task: in memory, decoded, class-balanced, validation held out of training.

``cifar10`` is downloaded once by torchvision, ``imagefolder:PATH`` is anybody's, ``digits`` are
the 1,797 handwritten digits that scikit-learn carries. A search sees the training part alone,
cut into training and validation images; the test part is for ``nas benchmark``.

The only room that knows torchvision.
"""

from __future__ import annotations

import hashlib
import socket
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from nas.errors import DataError
from nas.tasks import folder
from nas.tasks.split import draw_two

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from nas.tasks.task import Task

Part: TypeAlias = Literal["train", "test"]
DIGITS_TEST_SHARE: Final = 0.2
NETWORK_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True)
class ImageData:
    """The images of a search: plain contiguous arrays, which Ray's workers share.

    Attributes:
        train, validation: uint8, (n, channels, size, size), disjoint.
        train_labels, validation_labels: int64, (n,).
        classes: names, by label.
        mean, std: of each channel over the training images, in units of a pixel's value.
        digest: of all of it, 16 hex characters.
    """

    name: str
    classes: tuple[str, ...]
    train: NDArray[np.uint8]
    train_labels: NDArray[np.int64]
    validation: NDArray[np.uint8]
    validation_labels: NDArray[np.int64]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    digest: str

    @property
    def num_classes(self) -> int:
        """How many classes there are; chance is one in so many."""
        return len(self.classes)

    @property
    def channels(self) -> int:
        """1 for grey images, 3 for coloured ones."""
        return int(self.train.shape[1])


class LabelledImages(NamedTuple):
    """Images that no search ever saw: uint8 (n, channels, size, size) and int64 (n,)."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]


@dataclass(frozen=True)
class _Source:
    """A part of a data set: its labels, and a way to get the pixels of some of it."""

    classes: tuple[str, ...]
    labels: NDArray[np.int64]
    read: Callable[[NDArray[np.int64]], NDArray[np.uint8]]


def load_images(spec: str, task: Task) -> ImageData:
    """Training and validation images as the task asks, both from the data's training part.

    Args:
        spec: ``cifar10``, ``digits`` or ``imagefolder:PATH``.

    Raises:
        DataError: the data are missing, damaged, of one class, or cannot be downloaded.
    """
    source = _source(spec, task, "train")
    rng = np.random.default_rng(task.data_seed)
    train, held_out = draw_two(source.labels, task.train_images, task.validation_images, rng)
    images = source.read(np.concatenate([train, held_out]))
    labels = source.labels
    return _image_data(
        spec, source.classes, np.split(images, [len(train)]), [labels[train], labels[held_out]]
    )


def load_test(spec: str, task: Task) -> LabelledImages:
    """All test images, brought to the task's size; labels as in ``load_images``.

    Raises:
        DataError: see ``load_images``.
    """
    source = _source(spec, task, "test")
    return LabelledImages(source.read(np.arange(len(source.labels))), source.labels)


def _image_data(
    name: str,
    classes: tuple[str, ...],
    images: list[NDArray[np.uint8]],
    labels: list[NDArray[np.int64]],
) -> ImageData:
    train, validation = (np.ascontiguousarray(part) for part in images)
    # One pass over 256 counts, exact, in place of a float copy of every image.
    counts = [np.bincount(channel.ravel(), minlength=256) for channel in train.swapaxes(0, 1)]
    values = np.arange(256)
    mean = [float(c @ values / c.sum()) for c in counts]
    var = [float(c @ (values - m) ** 2 / c.sum()) for c, m in zip(counts, mean, strict=True)]
    return ImageData(
        name=name,
        classes=classes,
        train=train,
        train_labels=labels[0],
        validation=validation,
        validation_labels=labels[1],
        mean=tuple(mean),
        std=tuple(max(v**0.5, 1.0) for v in var),  # a black channel stays finite
        digest=_digest(classes, train, labels[0], validation, labels[1]),
    )


def _digest(classes: tuple[str, ...], *arrays: NDArray[np.generic]) -> str:
    digest = hashlib.blake2b(repr(classes).encode(), digest_size=8)
    for array in arrays:
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _source(spec: str, task: Task, part: Part) -> _Source:
    kind, _, path = spec.partition(":")
    if kind == "imagefolder":
        return _folder(_expanded(path), task.image_size, part)
    return {"cifar10": _cifar10, "digits": _digits}[kind](task.image_size, part)


def _expanded(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise DataError(f"{path}: there is no such user or home folder.") from None


def _folder(root: Path, size: int, part: Part) -> _Source:
    classes, images = folder.list_images(root, folder.TRAIN)
    folder.check_classes(root, classes)
    if part == "test":
        classes, images = folder.list_images(root, folder.TEST)
    paths = [path for own in images for path in own]
    labels = np.repeat(np.arange(len(classes)), [len(own) for own in images]).astype(np.int64)

    def read(chosen: NDArray[np.int64]) -> NDArray[np.uint8]:
        return folder.read_images([paths[index] for index in chosen], size)

    return _Source(classes, labels, read)


def _digits(size: int, part: Part) -> _Source:
    from sklearn.datasets import load_digits

    digits = load_digits()
    labels = digits.target.astype(np.int64)
    num_test = round(len(labels) * DIGITS_TEST_SHARE)
    # The test part is the same whatever the task's seed.
    parts = draw_two(labels, len(labels) - num_test, num_test, np.random.default_rng(0))
    own = np.sort(parts[part == "test"])
    pixels = np.round(digits.images[own] * (255 / 16)).astype(np.uint8)
    classes = tuple(str(name) for name in digits.target_names)
    return _Source(classes, labels[own], lambda chosen: _scaled(pixels[chosen], size))


def _cifar10(size: int, part: Part) -> _Source:
    from torchvision.datasets import CIFAR10

    root = folder.cache_folder() / "cifar10"
    try:
        with _patient():
            dataset = CIFAR10(root=root, train=part == "train", download=True)
    # torchvision reports a broken archive as RuntimeError; a network error is an OSError.
    except (OSError, RuntimeError, EOFError) as error:
        raise DataError(
            f"CIFAR-10 is not in {root} and cannot be downloaded ({error}); use --data "
            "imagefolder:PATH for images of your own (train/ and test/, a folder for each class) "
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
