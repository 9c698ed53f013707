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
from jaxtyping import Float
from torch import Tensor, nn

from nas.tasks.seeds import derive_seed, seeded

if TYPE_CHECKING:
    from collections.abc import Callable

    from nas.tasks.task import Task

ACTIVATIONS: Final[dict[str, type[nn.Module]]] = {"gelu": nn.GELU, "relu": nn.ReLU}


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
        tokens = self.embed(patches(images, self.patch))
        start = self.class_token.expand(len(images), -1, -1).to(tokens.dtype)
        x = torch.cat([start, tokens], dim=1) + self.positions
        for layer in self.layers:
            x = layer(x)
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

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        """Attention, then the feed-forward network, each around a residual."""
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        result: Tensor = x + self.dropout(self.mlp(self.mlp_norm(x)))
        return result


class Dropout(nn.Module):
    """Dropout of each branch before it joins the residual stream (Srivastava et al. 2014).

    On a CPU torch's own draws one 64-bit number for each element and costs as much as the layer's
    matrix products; here one such number decides four elements.

    Args:
        rate: share of elements set to zero, 0 <= rate < 1, to the nearest 1/65536.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.dropped = round(rate * 2**16)

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """The branch, in training with zeros and scaled so that its mean is kept."""
        if not self.training or self.dropped == 0:
            return x
        rate = self.dropped / 2**16
        if x.device.type != "cpu":
            return nn.functional.dropout(x, rate)
        words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        bits = words.view(torch.int16)[: x.numel()].view(x.shape)
        kept = (bits >= self.dropped - 2**15).to(x.dtype)
        return x * kept.mul_(1.0 / (1.0 - rate))


def patches(images: Float[Tensor, "b c h w"], size: int) -> Float[Tensor, "b n cpp"]:
    """Cut images into squares of ``size``, row by row, each one flat (c, size, size)."""
    count, channels, height, width = images.shape
    cut = images.view(count, channels, height // size, size, width // size, size)
    return cut.permute(0, 2, 4, 1, 3, 5).reshape(count, -1, channels * size**2)
