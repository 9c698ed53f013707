"""Training or validation images on the device: batches are cut, normalised and augmented there.

No Python per image, and on a GPU nothing that waits for it: every batch is a few operations on
whole tensors, which a CUDA graph can hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from nas.tasks.backbone import patches

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from nas.tasks import ImageData

FARTHEST_SHIFT: Final = 8
"""An image moves by up to its size divided by this."""


class Part:
    """Images of one part of the data, with their labels.

    Args:
        name: ``train`` or ``validation``.
        patch: edge length, in pixels, of the squares that images are cut into.
        is_augmented: batches are mirrored and moved at random, as in ``flip_and_shift``. A patch
            cannot be moved alone, so then images are kept whole and a batch is cut afterwards.
    """

    def __init__(
        self,
        data: ImageData,
        name: str,
        patch: int,
        device: torch.device,
        *,
        is_augmented: bool = False,
    ) -> None:
        self.patch, self.is_augmented = patch, is_augmented
        images = _tensor(getattr(data, name), device)
        self.images = images if is_augmented else patches(images, patch)
        self.labels = _tensor(getattr(data, f"{name}_labels"), device)
        mean, std = (torch.tensor(v, device=device) for v in (data.mean, data.std))
        self.mean = mean.repeat_interleave(patch**2)
        self.scale = (1.0 / std).repeat_interleave(patch**2)

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, chosen: Int[Tensor, "b"]) -> Float[Tensor, "b n cpp"]:
        """The chosen images in patches, with mean 0 and deviation 1 in each channel."""
        # index_select copies whole images where indexing copies byte by byte.
        images = self.images.index_select(0, chosen)
        if not self.is_augmented:
            return (images.float() - self.mean) * self.scale
        moved, is_inside = flip_and_shift(images)
        cut = (patches(moved, self.patch).float() - self.mean) * self.scale
        return cut * patches(is_inside.expand_as(moved), self.patch)


def flip_and_shift(
    images: Shaped[Tensor, "b c h w"],
) -> tuple[Shaped[Tensor, "b c h w"], Shaped[Tensor, "b 1 h w"]]:
    """Mirror half of the images and move each by up to an eighth of its size, at random.

    Drawn from the device's global generator: each image its own mirror and its own whole number of
    pixels along either axis, all equally likely.

    Returns:
        The images, and where they show something, as True: what has moved in from outside repeats
        the edge and is to be zeroed after normalisation, which makes it the data's mean.
    """
    count, channels, height, width = images.shape
    down, across, mirror = torch.rand(3, count, 1, device=images.device)
    rows, has_row = _moved(height, down)
    columns, has_column = _moved(width, across)
    columns = torch.where(mirror < 0.5, columns, width - 1 - columns)
    pixels = (rows.unsqueeze(2) * width + columns.unsqueeze(1)).flatten(1).unsqueeze(1)
    moved = images.flatten(2).gather(2, pixels.expand(-1, channels, -1)).view_as(images)
    return moved, (has_row.unsqueeze(2) & has_column.unsqueeze(1)).unsqueeze(1)


def _moved(
    size: int, draw: Float[Tensor, "b 1"]
) -> tuple[Int[Tensor, "b n"], Shaped[Tensor, "b n"]]:
    """Which place each place reads along one axis, and whether it exists; draws lie in [0, 1)."""
    most = size // FARTHEST_SHIFT
    # Rounding may bring a draw next to 1 up to the first number that is too large.
    shift = (draw * (2 * most + 1)).long().clamp(max=2 * most) - most
    read = torch.arange(size, device=draw.device) + shift
    return read.clamp(0, size - 1), (read >= 0) & (read < size)


def _tensor(array: NDArray[np.generic], device: torch.device) -> Tensor:
    # A copy: arrays in shared memory are read-only, which torch cannot express.
    return torch.tensor(array, device=device)
