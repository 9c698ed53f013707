"""Transformer layers with exchangeable attention, which all task families use, and random seeds.

    x = x + dropout(attention(norm(x)));  x = x + dropout(W_2 act(W_1 norm(x)))

With swiglu, act multiplies the swish of one half of the features by the other half.

A training has independent random streams for the attention of each layer, the other initial
weights, the order of data, and noise. So the other weights of a model are equal for mechanisms that
need different numbers of random weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from nas.tasks.base import MakeAttention, ModelTask

NORMS: Final[dict[str, type[nn.Module]]] = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}


def derive_seed(seed: int, purpose: str) -> int:
    """Return the seed of the random stream ``purpose`` of a training, 0 <= seed < 2**63."""
    text = f"nas seed 1|{seed}|{purpose}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's global generators on all devices, and restore their states afterwards."""
    devices: range = range(0)
    if torch.cuda.is_available():
        torch.cuda.init()  # type: ignore[no-untyped-call]
        devices = range(torch.cuda.device_count())
    with torch.random.fork_rng(devices=devices):
        torch.default_generator.manual_seed(seed)
        for device in devices:
            torch.cuda.default_generators[device].manual_seed(seed)
        yield


class Transformer(nn.Module):
    """The layers of a task's model; subclasses call ``add_ends`` for the other parts.

    ``attention`` returns the attention module of a layer, given the layer's index. The module maps
    tokens of shape (b, n, width) to outputs of the same shape.
    """

    def __init__(self, task: ModelTask, attention: MakeAttention, seed: int) -> None:
        super().__init__()
        with seeded(derive_seed(seed, "layers")):
            self.layers = nn.ModuleList(Layer(task) for _ in range(task.depth))
            self.norm = NORMS[task.norm](task.width) if task.final_norm else nn.Identity()
        for index, layer in enumerate(self.layers):
            with seeded(derive_seed(seed, f"attention {index}")):
                layer.attention = attention(index)
            if task.zero_init:
                for last in (layer.second, getattr(layer.attention, "wo", None)):
                    if isinstance(last, nn.Linear):
                        nn.init.zeros_(last.weight)

    def add_ends(
        self,
        task: ModelTask,
        seed: int,
        embed: Callable[[], nn.Module],
        num_classes: int,
        num_learned: int,
    ) -> None:
        """Add the embedding of inputs, learned tokens and positions, and the output layer."""
        with seeded(derive_seed(seed, "ends")):
            self.embed = embed()
            self.learned = nn.Parameter(torch.randn(1, num_learned, task.width) * task.init_std)
            self.positions = None
            if task.positions != "none":
                shape = 1, task.sizes.tokens, task.width
                self.positions = nn.Parameter(torch.randn(shape) * task.init_std)
            self.head = nn.Linear(task.width, num_classes)

    def place(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b m d"]:
        """Return the learned tokens and then the embedded inputs ``x``, with positions added."""
        if self.learned.shape[1]:
            x = torch.cat([self.learned.expand(len(x), -1, -1).to(x.dtype), x], dim=1)
        return x if self.positions is None else x + self.positions

    def transform(
        self,
        x: Float[Tensor, "b n d"],
        read: slice = slice(None),
        padding: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b m d"]:
        """Return the features of the tokens ``read`` after all layers and the final norm.

        After its attention, the last layer computes only these tokens. ``padding`` is True at
        tokens that attention must ignore.
        """
        for layer in self.layers[:-1]:
            x = layer(x, padding=padding)
        return cast("Tensor", self.norm(self.layers[-1](x, read, padding)))

    def attentions(self) -> list[nn.Module]:
        """Return the attention modules, one for each layer."""
        return [layer.attention for layer in self.layers if isinstance(layer, Layer)]


class Layer(nn.Module):
    """A pre-norm transformer layer; ``Transformer`` sets its attribute ``attention``."""

    attention: nn.Module

    def __init__(self, task: ModelTask) -> None:
        super().__init__()
        hidden = round(task.width * task.mlp_ratio)
        has_bias = task.feed_forward in ("gelu", "relu")
        self.attention_norm, self.mlp_norm = (NORMS[task.norm](task.width) for _ in range(2))
        self.act = ACTIVATIONS[task.feed_forward]
        streams = 2 if task.feed_forward == "swiglu" else 1
        self.first = nn.Linear(task.width, streams * hidden, bias=has_bias)
        self.second = nn.Linear(hidden, task.width, bias=has_bias)
        self.dropout = Dropout(task.dropout)
        self.options = {"is_causal": True} if task.is_causal else {}

    def forward(
        self,
        x: Float[Tensor, "b n d"],
        read: slice = slice(None),
        padding: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b m d"]:
        masks = {} if padding is None else {"key_padding_mask": padding}
        mixed = self.attention(self.attention_norm(x), **self.options, **masks)
        x = x[:, read] + self.dropout(mixed[:, read])
        result: Tensor = x + self.dropout(self.second(self.act(self.first(self.mlp_norm(x)))))
        return result


def _relu_squared(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    positive = F.relu(x)
    return positive * positive  # torch.square computes in float32 under mixed precision


def _swiglu(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    gate, value = x.chunk(2, dim=-1)
    return F.silu(gate) * value


ACTIVATIONS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "gelu": F.gelu, "relu": F.relu, "relu_squared": _relu_squared, "swiglu": _swiglu
}  # fmt: skip


class Dropout(nn.Module):
    """Dropout (Srivastava et al. 2014) that draws one 64-bit number for four elements on a CPU.

    It takes 2 % of a training step; torch's takes as long as the matrix products of a layer. The
    fraction ``rate`` of elements, 0 <= rate < 1, is rounded to a multiple of 1/65536.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.dropped = min(round(rate * 2**16), 2**16 - 1)

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Set random elements of ``x`` to zero, scale up the others; return ``x`` in evaluation."""
        if not self.training or self.dropped == 0:
            return x
        if x.device.type != "cpu":
            return nn.functional.dropout(x, self.dropped / 2**16)
        words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        kept = words.view(torch.int16)[: x.numel()] >= self.dropped - 2**15
        return x * kept.to(x.dtype).mul_(1.0 / (1.0 - self.dropped / 2**16)).view(x.shape)
