"""Hosts of timm: the attention of its vision transformers.

timm.layers.Attention calls torch's fused attention itself, so its forward is written again here,
over the parts that the module has: norms of queries and keys, a norm and a gate of the output.
"""

from __future__ import annotations

from typing import Any, Final

from torch import Tensor, nn

from nas.kernels.runtime import merge_heads
from nas.surgery.core import AttentionCore, HostSizes, causal_mask, split_mask
from nas.surgery.hosts import CORE, refusal

_HOMES: Final = ("timm.layers.attention", "timm.models.vision_transformer")
_PARTS: Final = {"qkv", "q_norm", "k_norm", "attn_drop", "norm", "gate", "proj", "proj_drop"}


class TimmHost:
    """timm.layers.Attention itself; a subclass may attend in its own way."""

    about = "timm.layers.Attention"

    def recognises(self, module: nn.Module) -> bool:
        """Whether it is timm's Attention, or one swapped before."""
        kind = type(module)
        is_timms = kind.__module__ in _HOMES and kind.__qualname__ == "Attention"
        return is_timms or kind is SwappedTimmAttention

    def measure(self, module: nn.Module) -> HostSizes:
        """The sizes; refuses a part that this forward would leave out."""
        parts: Any = module
        unknown = sorted(set(dict(module.named_children())) - _PARTS - {CORE})
        if unknown:
            raise refusal(module, f"has {', '.join(unknown)}, which this version does not know")
        heads, has_bias = parts.num_heads, parts.qkv.bias is not None
        return HostSizes(parts.qkv.in_features, heads, heads, parts.head_dim, has_bias)

    def install(self, module: nn.Module, core: AttentionCore) -> None:
        """Turn the module into a ``SwappedTimmAttention``."""
        module.__class__ = SwappedTimmAttention
        module.core = core


class SwappedTimmAttention(nn.Module):
    """timm's Attention whose core is a mechanism; (b, n, dim) to (b, n, out)."""

    def forward(
        self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """Attend; masks as in F.scaled_dot_product_attention, of which timm lets causality win."""
        parts: Any = self
        qkv = parts.qkv(x).unflatten(-1, (3, parts.num_heads, parts.head_dim))
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        q, k = parts.q_norm(q), parts.k_norm(k)
        mask, bias = (causal_mask(q, k), None) if is_causal else split_mask(attn_mask)
        out, _ = parts.core(q, k, v, x, mask, bias, dropout=parts.attn_drop.p)
        out = merge_heads(out)
        if (norm := getattr(self, "norm", None)) is not None:
            out = norm(out)
        if (gate := getattr(self, "gate", None)) is not None:
            out = out * gate(x).sigmoid()
        result: Tensor = parts.proj_drop(parts.proj(out))
        return result
