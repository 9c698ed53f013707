"""Images in a folder for each class: listed, decoded once in parallel, kept decoded in a cache.

    PATH/train/<class>/*.jpg
    PATH/test/<class>/*.jpg    (or val/) the test set, if there is one

Only the images that are asked for are read. They are kept as one array whose name is a digest of
their paths, sizes and times of change, so that a second start reads one file.
"""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from PIL import Image, ImageOps

from nas.common.errors import DataError
from nas.tasks.names import check_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

SUFFIXES: Final = (
    ".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff"
)  # fmt: skip
TRAIN: Final = ("train",)
TEST: Final = ("test", "val")
LAYOUT: Final = "expected train/ with a folder of images for each class"
FORMATS: Final = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "PPM", "TIFF")
"""What Pillow may try on a file, whatever its name: not PostScript, which is a program."""
MAX_PIXELS: Final = 2**25
"""Of an image to be decoded; a JPEG larger than that is decoded at a fraction of its size."""
FORMAT: Final = 1  # of the cached arrays


def cache_folder() -> Path:
    """Where data are kept between runs: $NAS_CACHE, or ~/.cache/nas."""
    return Path(os.environ.get("NAS_CACHE") or "~/.cache/nas").expanduser()


def list_images(
    root: Path, part: Sequence[str] = TRAIN
) -> tuple[tuple[str, ...], list[list[Path]]]:
    """Classes and the images of each, both sorted.

    Args:
        part: the names that its folder may have; the first that is there counts.

    Raises:
        DataError: the folder is missing, has fewer than two classes, or a class fewer than two
            images, one to be trained on and one to be judged.
    """
    split = _part_folder(root, part)
    classes = _names(split, folders=True)
    if not classes:
        raise DataError(f"{split}: holds no folders; {LAYOUT}.")
    if len(classes) == 1:
        raise DataError(f"{split}: holds one class, {classes[0]!r}; expected at least two.")
    return tuple(classes), [_images(split / name) for name in classes]


def read_images(paths: Sequence[Path], size: int) -> NDArray[np.uint8]:
    """Images as (n, 3, size, size), from the cache if they are there unchanged.

    Raises:
        DataError: an image is damaged or cannot be read.
    """
    cached = cache_folder() / f"images-{_key(paths, size)}.npy"
    found = _load(cached, (len(paths), 3, size, size))
    if found is None:
        found = _decode_all(paths, size)
        _save(cached, found)
    return found


def decode(path: Path, size: int) -> NDArray[np.uint8]:
    """One image as (3, size, size): its middle square, scaled.

    Raises:
        DataError: it is damaged or cannot be read.
    """
    try:
        if not path.is_file():  # a pipe, which would never end
            raise OSError("no regular file")
        with Image.open(path, formats=FORMATS) as image:
            image.draft("RGB", (size, size))  # a large JPEG is decoded at a fraction of its size
            if image.width * image.height > MAX_PIXELS:
                raise ValueError(
                    f"{image.width} x {image.height} pixels; expected at most {MAX_PIXELS}"
                )
            return to_pixels(image.convert("RGB"), size)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(
            f"{path}: cannot be read as an image ({error}); replace or remove the file."
        ) from None


def to_pixels(image: Image.Image, size: int) -> NDArray[np.uint8]:
    """The middle square of an image as (channels, size, size)."""
    if image.size != (size, size):
        image = ImageOps.fit(image, (size, size), Image.Resampling.BILINEAR)
    pixels = np.asarray(image)
    return np.atleast_3d(pixels).transpose(2, 0, 1)


def _part_folder(root: Path, part: Sequence[str]) -> Path:
    if not root.exists():
        raise DataError(f"{root}: there is no such folder; {LAYOUT}.")
    if not root.is_dir():
        raise DataError(f"{root}: is a file; {LAYOUT}.")
    for name in part:
        if (root / name).is_dir():
            return root / name
    named = " or ".join(f"{name}/" for name in part)
    raise DataError(f"{root}: holds no folder {named}; {LAYOUT.replace('train/', named)}.")


def _names(folder: Path, *, folders: bool) -> list[str]:
    """Sorted names of the folders, or of the images, in a folder; hidden ones do not count."""
    try:
        with os.scandir(folder) as entries:
            found = sorted(
                entry.name
                for entry in entries
                if not entry.name.startswith(".")
                and (entry.is_dir() if folders else entry.name.lower().endswith(SUFFIXES))
            )
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror}).") from None
    for name in found:
        check_name(folder, name)
    return found


def _images(folder: Path) -> list[Path]:
    names = _names(folder, folders=False)
    if len(names) < 2:
        raise DataError(
            f"{folder}: holds {len(names) or 'no'} images; expected at least 2, "
            "as files such as .jpg or .png."
        )
    return [folder / name for name in names]


def _decode_all(paths: Sequence[Path], size: int) -> NDArray[np.uint8]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return np.stack(list(pool.map(partial(decode, size=size), paths)))


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
        found: NDArray[np.uint8] = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return found if found.shape == shape and found.dtype == np.uint8 else None


def _save(path: Path, images: NDArray[np.uint8]) -> None:
    """Keep the array; where that cannot be, the next start decodes again."""
    partial_file = path.with_name(f"{path.stem}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial_file.open("xb") as file:
            np.save(file, images)
        partial_file.replace(path)
    except OSError:
        with suppress(OSError):
            partial_file.unlink()
