"""A small vision transformer with a slot for attention in each layer.

    tokens = [class; W · patch_1; ...; W · patch_n] + positions
    x = x + attention(norm(x));  x = x + W_2 act(W_1 norm(x))        for each layer
    logits = W · norm(x_class)

(Dosovitskiy et al. 2021, eqs. 1 to 4.) All but the attention is drawn from a seed of its own: what
a mechanism draws moves nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn

from nas.tasks.seeds import derive_seed, seeded

if TYPE_CHECKING:
    from collections.abc import Callable

    from nas.tasks.task import Task

ACTIVATIONS: Final[dict[str, type[nn.Module]]] = {"gelu": nn.GELU, "relu": nn.ReLU}
USES_OF_A_STRIP: Final = 16
"""Branches that read one strip of dropout factors; drawing it costs as much as two masks."""


class Backbone(nn.Module):
    """The transformer of a task, from images to class logits.

    Args:
        task: gives every size and switch.
        channels: of the images.
        num_classes: width of the result.
        attention: called with each layer's index for a module (b, n, dim) to (b, n, dim).
        seed: of all initialisation; the attention of each layer gets a stream of its own.
    """

    def __init__(
        self,
        task: Task,
        *,
        channels: int,
        num_classes: int,
        attention: Callable[[int], nn.Module],
        seed: int,
    ) -> None:
        super().__init__()
        self.patch = task.patch
        self.keeps_sums = task.dropout == 0
        dim, _, depth, tokens = task.sizes
        with seeded(derive_seed(seed, "backbone")):
            self.embed = nn.Linear(channels * task.patch**2, dim)
            self.class_token = nn.Parameter(torch.randn(1, 1, dim) * task.init_std)
            self.positions = nn.Parameter(torch.randn(1, tokens, dim) * task.init_std)
            self.layers = nn.ModuleList(Layer(task) for _ in range(depth))
            self.norm = nn.LayerNorm(dim) if task.final_norm else nn.Identity()
            self.head = nn.Linear(dim, num_classes)
        for index, layer in enumerate(self.layers):
            with seeded(derive_seed(seed, f"attention {index}")):
                layer.attention = attention(index)

    def forward(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b classes"]:
        """Logits of normalised images."""
        return self.classify(patches(images, self.patch))

    def classify(self, cut: Float[Tensor, "b n cpp"]) -> Float[Tensor, "b classes"]:
        """Logits of normalised images that are cut into ``patches`` already."""
        tokens = self.embed(cut)
        start = self.class_token.expand(len(cut), -1, -1).to(tokens.dtype)
        x = torch.cat([start, tokens], dim=1) + self.positions
        for layer in self.layers[:-1]:
            x = layer(x)
        # Nothing else is read of the last layer. To leave the other tokens out rounds the sums
        # in weights' gradients otherwise: tasks without dropout keep the results on record.
        x = self.layers[-1](x, tokens=None if self.training and self.keeps_sums else 1)
        logits: Tensor = self.head(self.norm(x[:, 0]))
        return logits

    def attentions(self) -> list[nn.Module]:
        """What the slots hold, layer by layer."""
        return [layer.attention for layer in self.layers if isinstance(layer, Layer)]


class Layer(nn.Module):
    """One pre-norm layer; its attention is put in by the backbone."""

    attention: nn.Module

    def __init__(self, task: Task) -> None:
        super().__init__()
        hidden = round(task.width * task.mlp_ratio)
        self.attention_norm = nn.LayerNorm(task.width)
        self.mlp_norm = nn.LayerNorm(task.width)
        self.mlp = nn.Sequential(
            nn.Linear(task.width, hidden),
            ACTIVATIONS[task.activation](),
            nn.Linear(hidden, task.width),
        )
        self.dropout = Dropout(task.dropout)

    def forward(
        self, x: Float[Tensor, "b n d"], tokens: int | None = None
    ) -> Float[Tensor, "b m d"]:
        """Attention, then the feed-forward network, each around a residual.

        Args:
            tokens: how many, from the first on, are asked for; None for all.
        """
        x = (x + self.dropout(self.attention(self.attention_norm(x))))[:, :tokens]
        result: Tensor = x + self.dropout(self.mlp(self.mlp_norm(x)))
        return result


class Dropout(nn.Module):
    """Dropout of each branch before it joins the residual stream (Srivastava et al. 2014).

    On a CPU torch's own draws one 64-bit number for each element and costs as much as the layer's
    matrix products. Here such a number decides four elements of a strip twice as long as the
    branch, which several branches read, each from a place of its own, drawn at random. Within a
    branch elements are independent; two branches share no pattern but one that is shifted.

    Args:
        rate: share of elements set to zero, 0 <= rate < 1, to the nearest 1/65536.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.dropped = round(rate * 2**16)
        self.strip = torch.empty(0)
        self.uses_left = 0

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """The branch, in training with zeros and scaled so that its mean is kept."""
        if not self.training or self.dropped == 0:
            return x
        if x.device.type != "cpu":
            return nn.functional.dropout(x, self.dropped / 2**16)
        length = 2 * x.numel()
        if not self.uses_left or len(self.strip) < length or self.strip.dtype != x.dtype:
            self.strip = _factors(length, self.dropped, x.dtype)
            self.uses_left = USES_OF_A_STRIP
        self.uses_left -= 1
        start = int(torch.randint(len(self.strip) - x.numel() + 1, ()))
        return x * self.strip[start : start + x.numel()].view(x.shape)


def _factors(length: int, dropped: int, dtype: torch.dtype) -> Float[Tensor, " length"]:
    """Zero with a probability of ``dropped`` / 65536, else what keeps the mean at 1."""
    words = torch.empty(-(-length // 4), dtype=torch.int64).random_(-(2**63), None)
    kept = words.view(torch.int16)[:length] >= dropped - 2**15
    return kept.to(dtype).mul_(1.0 / (1.0 - dropped / 2**16))


def patches(images: Num[Tensor, "b c h w"], size: int) -> Num[Tensor, "b n cpp"]:
    """Cut images into squares of ``size``, row by row, each one flat (c, size, size)."""
    count, channels, height, width = images.shape
    cut = images.view(count, channels, height // size, size, width // size, size)
    return cut.permute(0, 2, 4, 1, 3, 5).reshape(count, -1, channels * size**2)
