"""Read the images of a folder with one subfolder for each class, and cache the decoded images.

    PATH/train/<class>/*.jpg
    PATH/test/<class>/*.jpg    the test set, optional; the folder may also be named val

Only the images that a task uses are read. They are cached as one array in a file, whose name is a
digest of the images' paths, sizes and modification times.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from nas.common.errors import DataError
from nas.common.reading import open_regular
from nas.tasks.files import list_classes

SUFFIXES: Final = (
    ".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff"
)  # fmt: skip
TRAIN: Final = ("train",)
TEST: Final = ("test", "val")
FORMATS: Final = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "PPM", "TIFF")
"""Formats that Pillow may try on any file; not PostScript, which is a program."""
MAX_PIXELS: Final = 2**25
"""Largest number of pixels of a decoded image; a large JPEG is decoded at a smaller size."""
FORMAT: Final = 2  # version of the cached arrays


def cache_folder() -> Path:
    """Return the directory of cached data: $NAS_CACHE, or ~/.cache/nas."""
    return Path(os.environ.get("NAS_CACHE") or "~/.cache/nas").expanduser()


def list_images(
    root: Path, part: Sequence[str] = TRAIN
) -> tuple[tuple[str, ...], list[list[Path]]]:
    """Return the class names of an image folder, and the paths of the images of each class.

    Each class must have two images or more; raises as ``list_classes``.
    """
    return list_classes(root, part, SUFFIXES, "images", least=2)


def read_images(paths: Sequence[Path], size: int) -> NDArray[np.uint8]:
    """Return the images of some files, scaled to shape (n, 3, size, size).

    They are read from the cache if the files have not changed since they were cached.

    Raises:
        DataError: an image is damaged or cannot be read.
    """
    cached = cache_folder() / f"images-{_key(paths, size)}.npy"
    images = _load(cached, (len(paths), 3, size, size))
    if images is None:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            images = np.stack(list(pool.map(partial(decode, size=size), paths)))
        _save(cached, images)
    return images


def decode(path: Path, size: int) -> NDArray[np.uint8]:
    """Return the middle square of an image file, scaled to shape (3, size, size).

    Raises:
        DataError: the image is damaged, too large or cannot be read, or the range of its pixel
            values is unknown.
    """
    try:
        with open_regular(path) as file, Image.open(file, formats=FORMATS) as image:
            image.draft("RGB", (size, size))  # decodes a large JPEG at a fraction of its size
            if image.width * image.height > MAX_PIXELS:
                raise ValueError(
                    f"{image.width} x {image.height} pixels; expected at most {MAX_PIXELS}"
                )
            return to_pixels(_to_8_bits(image).convert("RGB"), size)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(
            f"{path}: cannot be read as an image ({error}); replace or remove the file."
        ) from None


def _to_8_bits(image: Image.Image) -> Image.Image:
    """Scale a grey image of 16-bit or floating-point values, which ``convert`` would clip, to 8."""
    if image.mode not in ("I", "F") and not image.mode.startswith("I;"):
        return image
    values = np.asarray(image, dtype=np.float64)
    most = 1.0 if image.mode == "F" else 65_535.0
    if image.mode == "I" and image.format == "TIFF":  # in other formats this mode means 16 bits
        raise ValueError("32-bit integer pixels; expected 8 or 16 bits, or floats from 0 to 1")
    if not (values.min() >= 0 and values.max() <= most):  # NaN included
        raise ValueError(
            f"pixels from {values.min():g} to {values.max():g}; expected 0 to {most:g}"
        )
    return Image.fromarray(np.round(values * (255 / most)).astype(np.uint8))


def to_pixels(image: Image.Image, size: int) -> NDArray[np.uint8]:
    """Return the middle square of an image, scaled to shape (channels, size, size)."""
    if image.size != (size, size):
        image = ImageOps.fit(image, (size, size), Image.Resampling.BILINEAR)
    return np.atleast_3d(np.asarray(image)).transpose(2, 0, 1)


def _key(paths: Sequence[Path], size: int) -> str:
    digest = hashlib.sha256(f"{FORMAT}|{size}".encode())
    for path in paths:
        try:
            state = path.stat()
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
        digest.update(os.fsencode(f"|{path}|{state.st_size}|{state.st_mtime_ns}"))
    return digest.hexdigest()[:24]


def _load(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8] | None:
    try:
        images: NDArray[np.uint8] = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return images if images.shape == shape and images.dtype == np.uint8 else None


def _save(path: Path, images: NDArray[np.uint8]) -> None:
    """Write images to a file of the cache; do nothing if the file cannot be written."""
    partial_file = path.with_name(f"{path.stem}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial_file.open("xb") as file:
            np.save(file, images)
        partial_file.replace(path)
    except OSError:
        with suppress(OSError):
            partial_file.unlink()
