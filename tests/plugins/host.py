"""A host: attention of another library, with projections called to_q, to_k and to_v."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from nas.surgery.core import AttentionCore, HostSizes
from nas.surgery.hosts import HOSTS, Host


class PlainAttention(nn.Module):
    """Self-attention, (b, n, dim) to (b, n, dim)."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.dim, self.heads, self.width = dim, heads, dim // heads
        for name in ("to_q", "to_k", "to_v", "to_out"):
            self.add_module(name, nn.Linear(dim, dim))

    def streams(self, x: Tensor) -> list[Tensor]:
        """Queries, keys and values, (b, h, n, w)."""
        parts: Any = self
        streams = (part(x) for part in (parts.to_q, parts.to_k, parts.to_v))
        return [t.unflatten(-1, (-1, self.width)).transpose(1, 2) for t in streams]

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
class PlainHost(Host):
    """The class PlainAttention, without subclasses."""

    about = "PlainAttention"
    names = ("to_q", "to_k", "to_v", "to_out")

    def recognises(self, module: nn.Module) -> bool:
        return type(module) in (PlainAttention, SwappedPlainAttention)

    def measure(self, module: nn.Module) -> HostSizes:
        assert isinstance(module, PlainAttention)
        return HostSizes(module.dim, module.heads, module.heads, module.width, has_bias=True)

    def install(self, module: nn.Module, core: AttentionCore) -> None:
        module.__class__ = SwappedPlainAttention
        module.core = core
