"""A host: attention of another library, with projections called to_q, to_k and to_v."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas.surgery.core import AttentionCore, HostSizes
from nas.surgery.hosts import HOSTS


class PlainAttention(nn.Module):
    """Self-attention, (b, n, dim) to (b, n, dim)."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.dim, self.heads = dim, heads
        for name in ("to_q", "to_k", "to_v", "to_out"):
            self.add_module(name, nn.Linear(dim, dim))

    def streams(self, x: Tensor) -> list[Tensor]:
        """Queries, keys and values, (b, h, n, w)."""
        parts: Any = self
        streams = (part(x) for part in (parts.to_q, parts.to_k, parts.to_v))
        return [t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in streams]

    def forward(self, x: Tensor) -> Tensor:
        """Attend to all tokens."""
        return self.to_out(
            F.scaled_dot_product_attention(*self.streams(x)).transpose(1, 2).flatten(2)
        )


class SwappedPlainAttention(PlainAttention):
    """The same projections with a mechanism between them."""

    core: AttentionCore

    def forward(self, x: Tensor) -> Tensor:
        """Attend to all tokens."""
        out, _ = self.core(*self.streams(x), x, None, None)
        return self.to_out(out.transpose(1, 2).flatten(2))


@HOSTS.register("plain")
class PlainHost:
    """The class PlainAttention, without subclasses."""

    about = "PlainAttention"

    def recognises(self, module: nn.Module) -> bool:
        """Whether it is a PlainAttention, swapped or not."""
        return type(module) in (PlainAttention, SwappedPlainAttention)

    def measure(self, module: nn.Module) -> HostSizes:
        """The sizes of its attention."""
        assert isinstance(module, PlainAttention)
        width = module.dim // module.heads
        return HostSizes(module.dim, module.heads, module.heads, width, has_bias=True)

    def install(self, module: nn.Module, core: AttentionCore) -> None:
        """Replace its attention by the core."""
        module.__class__ = SwappedPlainAttention
        module.core = core

    def dry_run(self, module: nn.Module) -> None:
        """Run it on two tokens."""
        assert isinstance(module, PlainAttention)
        module(torch.zeros(1, 2, module.dim))
