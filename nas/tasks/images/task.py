"""The class `ImageTask` of the task family ``images``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, model_validator

from nas.genome import ModelSizes
from nas.tasks.base import TASKS, Classification, Data, MakeAttention, Side
from nas.tasks.images.data import load_images

if TYPE_CHECKING:
    import torch
    from torch import nn

    from nas.tasks.images.model import ImageExamples


@TASKS.register("images")
class ImageTask(Classification):
    """A task that trains a small vision transformer to classify images.

    Attributes:
        image_size, patch: edge lengths of a scaled image and of a patch, in pixels.
        train_images, validation_images: numbers of images in the two splits, see ``draw_two``.
        curve_images: number of validation images that are evaluated after each epoch but the last.
        augmentation: augmentation of the training images, see ``flip_and_shift``.
        positions: ``learned`` position embeddings; ``sines``: learned too, but initially sines of
            row and column, which distinguish the places of patches from the start; or ``none``.
        pooling: the features that are classified: those of a ``class`` token, which stands first,
            or the ``mean`` over all patches.
    """

    kind: ClassVar[str] = "images"
    data_kinds: ClassVar[Mapping[str, str]] = {"cifar10": "", "digits": "", "imagefolder": "PATH"}
    targets_name: ClassVar[str] = "held-out training images"

    data: str = "cifar10"
    image_size: int = Field(default=32, ge=1, le=1024)
    patch: int = Field(default=4, ge=1)
    train_images: int = Field(default=2880, ge=1)
    validation_images: int = Field(default=5000, ge=1)
    curve_images: int = Field(default=1000, ge=1)
    augmentation: Literal["none", "flip_shift"] = "none"
    positions: Literal["learned", "sines", "none"] = "learned"  # type: ignore[assignment]
    pooling: Literal["class", "mean"] = "class"

    @model_validator(mode="after")
    def _patches_fit(self) -> ImageTask:
        if self.image_size % self.patch:
            raise ValueError(
                f"patch is {self.patch}; expected a divisor of image_size {self.image_size}"
            )
        if self.positions == "sines" and self.width % 4:
            raise ValueError(
                f"width is {self.width}; expected a multiple of 4, because positions are sines"
            )
        return self

    @property
    def num_learned(self) -> int:
        """The number of learned tokens: the class token, if there is one, and the registers."""
        return self.registers + (self.pooling == "class")

    @property
    def sizes(self) -> ModelSizes:
        tokens = self.num_learned + (self.image_size // self.patch) ** 2
        return ModelSizes(self.width, self.heads, self.depth, tokens)

    def load(self) -> Data:
        counts = self.train_images, self.validation_images
        return load_images(self.data, self.image_size, counts, self.data_seed)

    def load_test(self) -> Data:
        counts = self.train_images, self.validation_images
        return load_images(self.data, self.image_size, counts, self.data_seed, is_tested=True)

    def examples(
        self, data: Data, side: Side, device: torch.device, dtype: torch.dtype
    ) -> ImageExamples:
        from nas.tasks.images.model import ImageExamples

        is_augmented = side == "train" and self.augmentation != "none"
        return ImageExamples(data, side, self.patch, device, dtype=dtype, is_augmented=is_augmented)

    def num_eval_examples(self, data: Data, epoch: int) -> int:
        count = super().num_eval_examples(data, epoch)
        return count if epoch == self.epochs else min(self.curve_images, count)

    def build_model(self, data: Data, attention: MakeAttention, seed: int) -> nn.Module:
        from nas.tasks.images.model import VisionTransformer

        patch_width = data.train["images"].shape[1] * self.patch**2
        return VisionTransformer(self, attention, seed, patch_width, self.num_classes(data))
