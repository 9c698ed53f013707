"""A small vision transformer with exchangeable attention modules, and its batches of images.

    x = layers([class; registers; E · patch_1; ...; E · patch_n] + positions)
    logits = W · norm(x_class)   or   W · mean_i norm(x_patch_i)

(Dosovitskiy et al. 2021, eqs. 1 to 4.) Here "class" and the registers are learned tokens; there is
no class token if the patches are averaged. Images are cut into patches, normalised and augmented on
the device by a few operations on a whole batch, so that a CUDA graph can capture these operations.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from nas.tasks.base import Batch, Data, MakeAttention, Side
from nas.tasks.layers import Transformer

if TYPE_CHECKING:
    from nas.tasks.images.task import ImageTask

MAX_SHIFT: Final = 8  # an augmented image is shifted by up to its size divided by this number


class ImageExamples:
    """The images and labels of a data split on a device; batches are (patches, labels)."""

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
        columns = data.columns(side)
        # Copies: arrays in shared memory are read-only, which torch cannot express.
        images = torch.tensor(columns["images"], device=device)
        self.labels = torch.tensor(columns["labels"], device=device)
        self.images = images if is_augmented else patches(images, patch)
        mean, std = (torch.tensor(data.facts[name], device=device) for name in ("mean", "std"))
        self.mean = mean.repeat_interleave(patch**2)
        self.scale = (1.0 / std).repeat_interleave(patch**2)

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, chosen: Int[Tensor, "b"]) -> Batch:
        """Return images as patches whose channels are normalised by the facts of the data."""
        # index_select copies whole images; indexing would copy byte by byte.
        images = self.images.index_select(0, chosen)
        labels = self.labels.index_select(0, chosen)
        if not self.is_augmented:
            return self._normalise(images), labels
        shifted, is_inside = flip_and_shift(images)
        cut = self._normalise(patches(shifted, self.patch))
        return cut * patches(is_inside.expand_as(shifted), self.patch), labels

    def _normalise(self, cut: Shaped[Tensor, "b n cpp"]) -> Float[Tensor, "b n cpp"]:
        return ((cut.float() - self.mean) * self.scale).to(self.dtype)


def flip_and_shift(
    images: Shaped[Tensor, "b c h w"],
) -> tuple[Shaped[Tensor, "b c h w"], Shaped[Tensor, "b 1 h w"]]:
    """Mirror each image with probability 1/2, and shift it by up to an eighth of its size.

    The shift along each axis is a uniformly distributed number of whole pixels. The mask is False
    at pixels whose source lies outside of the image. They have the values of the nearest edge; the
    caller sets them to zero after normalisation.
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
    """Return the index from which each pixel of an axis is copied, and whether it is inside.

    ``draw`` is a random number in [0, 1) for each image. The index is limited to the image.
    """
    most = size // MAX_SHIFT
    # A draw close to 1 may be rounded up to 2 * most + 1.
    shift = (draw * (2 * most + 1)).long().clamp(max=2 * most) - most
    source = torch.arange(size, device=draw.device) + shift
    return source.clamp(0, size - 1), (source >= 0) & (source < size)


def patches(images: Shaped[Tensor, "b c h w"], size: int) -> Shaped[Tensor, "b n cpp"]:
    """Return the square patches of images, row by row, each flattened from (c, size, size)."""
    count, channels, height, width = images.shape
    cut = images.view(count, channels, height // size, size, width // size, size)
    return cut.permute(0, 2, 4, 1, 3, 5).reshape(count, -1, channels * size**2)


class VisionTransformer(Transformer):
    """A classifier of images that are cut into ``patches`` of ``patch_width`` values."""

    def __init__(
        self,
        task: ImageTask,
        attention: MakeAttention,
        seed: int,
        patch_width: int,
        num_classes: int,
    ) -> None:
        super().__init__(task, attention, seed)
        embed = partial(nn.Linear, patch_width, task.width)
        self.add_ends(task, seed, embed, num_classes, task.num_learned)
        self.read = slice(0, 1) if task.pooling == "class" else slice(task.num_learned, None)
        if task.positions == "sines":
            with torch.no_grad():
                places = self.get_parameter("positions")[0, task.num_learned :]
                places.copy_(sines(math.isqrt(len(places)), task.width))

    def forward(self, cut: Float[Tensor, "b n cpp"]) -> Float[Tensor, "b classes"]:
        x = self.transform(self.place(self.embed(cut)), self.read)
        return cast("Tensor", self.head(x.mean(1)))


def sines(side: int, dim: int) -> Float[Tensor, "n dim"]:
    """Return position embeddings of side x side patches, with ``dim`` features, a multiple of 4.

    Half of the features encode the row and half the column (Vaswani et al. 2017, section 3.5).
    """
    speeds = 10_000.0 ** (-torch.arange(dim // 4) / (dim // 4))
    rows, columns = torch.meshgrid(*[torch.arange(side)] * 2, indexing="ij")
    turns = [axis.reshape(-1, 1) * speeds for axis in (rows, columns)]
    return torch.cat([wave(turn) for turn in turns for wave in (torch.sin, torch.cos)], dim=1)
