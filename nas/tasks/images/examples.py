"""Images on a device: cut into patches, normalised and augmented there.

A batch is a few operations on whole tensors, without Python per image and without waiting for a
GPU, so that a CUDA graph can capture it.
"""

from __future__ import annotations

from typing import Final

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from nas.tasks.base import Batch, Data, Side

MAX_SHIFT: Final = 8
"""An image is shifted by up to its size divided by this."""
MAX_BYTES: Final = 2**28
"""Images are normalised in advance if the result, two or four times their size, is no larger."""


class ImageExamples:
    """Images and labels of one split of the data; batches are (patches, labels).

    Args:
        patch: edge length of a patch in pixels.
        dtype: dtype of the batches, which the first layer takes.
        is_augmented: whether batches are mirrored and shifted at random, see ``flip_and_shift``.
            Then whole images are stored, and each batch is cut into patches afterwards.
    """

    def __init__(
        self,
        data: Data,
        side: Side,
        patch: int,
        device: torch.device,
        *,
        dtype: torch.dtype = torch.float32,
        is_augmented: bool = False,
    ) -> None:
        self.patch, self.dtype, self.is_augmented = patch, dtype, is_augmented
        columns = data.train if side == "train" else data.validation
        # Copies: arrays in shared memory are read-only, which torch cannot express.
        images = torch.tensor(columns["images"], device=device)
        self.labels = torch.tensor(columns["labels"], device=device)
        self.images = images if is_augmented else patches(images, patch)
        mean, std = (torch.tensor(data.facts[name], device=device) for name in ("mean", "std"))
        self.mean = mean.repeat_interleave(patch**2)
        self.scale = (1.0 / std).repeat_interleave(patch**2)
        is_small = images.numel() * dtype.itemsize <= MAX_BYTES
        self.is_normalised = is_small and not is_augmented
        if self.is_normalised:
            parts = torch.split(self.images, 256)  # a part fits a cache
            self.images = torch.cat([self._normalise(part) for part in parts])

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, chosen: Int[Tensor, "b"]) -> Batch:
        """The chosen images (b, n, c·p·p), mean 0 and deviation 1 in each channel, and labels."""
        return self._images(chosen), self.labels.index_select(0, chosen)

    def _images(self, chosen: Int[Tensor, "b"]) -> Float[Tensor, "b n cpp"]:
        # index_select copies whole images; indexing would copy byte by byte.
        images = self.images.index_select(0, chosen)
        if self.is_normalised:
            return images
        if not self.is_augmented:
            return self._normalise(images)
        shifted, is_inside = flip_and_shift(images)
        cut = self._normalise(patches(shifted, self.patch))
        return cut * patches(is_inside.expand_as(shifted), self.patch)

    def _normalise(self, cut: Shaped[Tensor, "b n cpp"]) -> Float[Tensor, "b n cpp"]:
        return ((cut.float() - self.mean) * self.scale).to(self.dtype)


def flip_and_shift(
    images: Shaped[Tensor, "b c h w"],
) -> tuple[Shaped[Tensor, "b c h w"], Shaped[Tensor, "b 1 h w"]]:
    """Mirror half of the images and shift each by up to an eighth of its size, at random.

    For each image, the device's global generator draws a mirror and a shift in whole pixels along
    either axis, uniformly.

    Returns:
        The images, and a mask that is False at pixels from outside the image. Such pixels repeat
        the edge; the caller sets them to zero after normalisation.
    """
    count, channels, height, width = images.shape
    down, across, mirror = torch.rand(3, count, 1, device=images.device)
    rows, has_row = _shifted(height, down)
    columns, has_column = _shifted(width, across)
    columns = torch.where(mirror < 0.5, columns, width - 1 - columns)
    pixels = (rows.unsqueeze(2) * width + columns.unsqueeze(1)).flatten(1).unsqueeze(1)
    moved = images.flatten(2).gather(2, pixels.expand(-1, channels, -1)).view_as(images)
    return moved, (has_row.unsqueeze(2) & has_column.unsqueeze(1)).unsqueeze(1)


def _shifted(
    size: int, draw: Float[Tensor, "b 1"]
) -> tuple[Int[Tensor, "b n"], Shaped[Tensor, "b n"]]:
    """The source of each pixel along an axis, and whether it exists; draws are in [0, 1)."""
    most = size // MAX_SHIFT
    # A draw close to 1 may be rounded up to 2 * most + 1.
    shift = (draw * (2 * most + 1)).long().clamp(max=2 * most) - most
    source = torch.arange(size, device=draw.device) + shift
    return source.clamp(0, size - 1), (source >= 0) & (source < size)


def patches(images: Shaped[Tensor, "b c h w"], size: int) -> Shaped[Tensor, "b n cpp"]:
    """Cut images into squares of ``size``, row by row, each one flat (c, size, size)."""
    count, channels, height, width = images.shape
    cut = images.view(count, channels, height // size, size, width // size, size)
    return cut.permute(0, 2, 4, 1, 3, 5).reshape(count, -1, channels * size**2)
