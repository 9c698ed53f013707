"""What a host is: a kind of attention module whose core can be exchanged. Those of torch and timm.

nn.TransformerEncoderLayer and DecoderLayer, torchvision's ViT and many others hold torch's. A
module becomes a subclass of its class, or one with its parts, and keeps its parameters under their
names. No library is imported beyond torch: a model brings its own. A package offers hosts of other
libraries under the entry point group ``nas.hosts``; they are asked after ours.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, Final, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas.common.errors import NasError
from nas.common.registry import Registry
from nas.compiler.kernels.runtime import merge_heads, past_keys, split_heads
from nas.surgery.core import AttentionCore, HostSizes
from nas.surgery.masks import split_mask

CORE: Final = "core"  # the name of the exchanged core in its module, and in the state_dict
_TIMM: Final = ("timm.layers.attention", "timm.models.vision_transformer")
_TIMM_PARTS: Final = {"qkv", "q_norm", "k_norm", "attn_drop", "norm", "gate", "proj", "proj_drop"}


class Host(Protocol):
    """A kind of attention module.

    Contract: ``measure`` changes nothing and raises ``NasError`` for a module whose function the
    exchange would not keep; ``install`` works on the module itself, so that its hooks, its
    parameters and whoever holds it stay, and adds the core's parameters as ``core.*``; ``rehearse``
    is given a copy with converted projections and a core.
    """

    @property
    def about(self) -> str:
        """What it is, for a person."""
        ...

    def recognises(self, module: nn.Module) -> bool:
        """Whether the module is one of this kind."""
        ...

    def measure(self, module: nn.Module) -> HostSizes:
        """The sizes of its attention."""
        ...

    def install(self, module: nn.Module, core: AttentionCore) -> None:
        """Let the module attend by the core from now on."""
        ...

    def rehearse(self, module: nn.Module) -> None:
        """Let a swapped module attend to a few tokens; raises ``NasError`` where it cannot."""
        ...


HOSTS: Final[Registry[type[Host]]] = Registry(
    "host",
    "nas.hosts",
    modules=("nas.surgery.hosts", "nas.surgery.hosts_transformers"),
)


def refusal(module: nn.Module, reason: str) -> NasError:
    """The error for a module that cannot be swapped; the caller says which one it is."""
    return NasError(f"{type(module).__name__} {reason}")


def converted_streams(module: Any, tokens: list[Tensor], width: int) -> list[Tensor]:
    """Queries, keys and values of a module whose projections were converted, (b, any, n, width)."""
    parts = (module.q_proj, module.k_proj, module.v_proj)
    found = (part(t) for part, t in zip(parts, tokens, strict=True))
    return [split_heads(t, t.shape[-1] // width) for t in found]


@HOSTS.register("torch")
class TorchHost:
    """nn.MultiheadAttention itself; a subclass may attend in its own way."""

    about = "torch.nn.MultiheadAttention"

    def recognises(self, module: nn.Module) -> bool:
        """Whether it is nn.MultiheadAttention, or one swapped before."""
        return type(module) in (nn.MultiheadAttention, SwappedMultiheadAttention)

    def measure(self, module: nn.Module) -> HostSizes:
        """The sizes; refuses keys that no token gives."""
        assert isinstance(module, nn.MultiheadAttention)
        if module.bias_k is not None or module.add_zero_attn:
            name = "add_zero_attn" if module.bias_k is None else "add_bias_kv"
            raise refusal(module, f"has {name}: it attends to a key that no token gives")
        heads, has_bias = module.num_heads, module.in_proj_bias is not None
        return HostSizes(module.embed_dim, heads, heads, module.head_dim, has_bias)

    def install(self, module: nn.Module, core: AttentionCore) -> None:
        """Turn the module into a ``SwappedMultiheadAttention``."""
        module.__class__ = SwappedMultiheadAttention
        module.core = core
        # An encoder layer would compute the attention itself, from our weights, in eval mode.
        module._qkv_same_embed_dim = False  # type: ignore[assignment]

    def rehearse(self, module: nn.Module) -> None:
        """Nothing: the forward is ours."""


class SwappedMultiheadAttention(nn.MultiheadAttention):
    """nn.MultiheadAttention whose core is a mechanism; its masks and results are torch's.

    A row without visible keys gives zeros, where torch gives NaN if weights are asked for.
    """

    core: AttentionCore

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend; shapes, masks (bool: True is masked out) and results as in torch."""
        if query.is_nested:
            return self._nested(query, key, value)
        if is_causal and attn_mask is None:
            raise RuntimeError("is_causal is a hint about attn_mask: give the causal attn_mask too")
        is_batched = query.dim() == 3
        tokens = [self._batch_first(t, is_batched) for t in (query, key, value)]
        mask, bias = self._masks(tokens[0], attn_mask, key_padding_mask)
        q, k, v = self._projected(tokens)
        out, weights = self.core(
            *(q, k, v, tokens[0], mask, bias),
            dropout=self.dropout,
            is_causal=is_causal,
            is_crossed=query is not key,
        )
        out = self.out_proj(merge_heads(out))
        if average_attn_weights and weights is not None:
            weights = weights.mean(dim=1)
        if not is_batched:
            out, weights = out.squeeze(0), None if weights is None else weights.squeeze(0)
        elif not self.batch_first:
            out = out.transpose(0, 1)
        return out, weights if need_weights else None

    def _batch_first(self, tokens: Tensor, is_batched: bool) -> Tensor:
        if not is_batched:
            return tokens.unsqueeze(0)
        return tokens if self.batch_first else tokens.transpose(0, 1)

    def _projected(self, tokens: list[Tensor]) -> list[Tensor]:
        if hasattr(self, "q_proj"):
            return converted_streams(self, tokens, self.head_dim)
        packed: Any = self.in_proj_weight
        weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        if packed is not None:
            weights = packed.chunk(3)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        found = (F.linear(t, w, b) for t, w, b in zip(tokens, weights, biases, strict=True))
        return [split_heads(t, self.num_heads) for t in found]

    def _masks(
        self, query: Tensor, attn_mask: Tensor | None, padding: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Torch's two masks as one of each kind: True where allowed, and added to scores."""
        batch = query.shape[0]
        if attn_mask is not None and attn_mask.dim() == 3:
            attn_mask = attn_mask.view(batch, self.num_heads, *attn_mask.shape[1:])
        if padding is not None:
            padding = padding.reshape(batch, 1, 1, -1)
        given = [m for m in (attn_mask, padding) if m is not None]
        found = [split_mask(~m if m.dtype == torch.bool else m) for m in given]
        masks = [mask for mask, _ in found if mask is not None]
        biases = [bias for _, bias in found if bias is not None]
        return (
            reduce(torch.logical_and, masks) if masks else None,
            reduce(torch.add, biases) if biases else None,
        )

    def _nested(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, None]:
        """Self-attention over sequences of several lengths: an encoder's, in eval mode."""
        if query is not key or key is not value:
            raise RuntimeError("nested tensors: expected one for query, key and value")
        lengths = [len(sequence) for sequence in query.unbind()]
        padded = query.to_padded_tensor(0.0)
        places = torch.arange(padded.shape[1], device=padded.device)
        padding = places >= torch.tensor(lengths, device=padded.device)[:, None]
        out, _ = self.forward(padded, padded, padded, padding, need_weights=False)
        rows = [row[:length] for row, length in zip(out, lengths, strict=True)]
        return torch.nested.as_nested_tensor(rows, layout=query.layout), None


@HOSTS.register("timm")
class TimmHost:
    """timm.layers.Attention itself; a subclass may attend in its own way."""

    about = "timm.layers.Attention"

    def recognises(self, module: nn.Module) -> bool:
        """Whether it is timm's Attention, or one swapped before."""
        kind = type(module)
        is_timms = kind.__module__ in _TIMM and kind.__qualname__ == "Attention"
        return is_timms or kind is SwappedTimmAttention

    def measure(self, module: nn.Module) -> HostSizes:
        """The sizes; refuses a part that this forward would leave out."""
        parts: Any = module
        unknown = sorted(set(dict(module.named_children())) - _TIMM_PARTS - {CORE})
        if unknown:
            raise refusal(module, f"has {', '.join(unknown)}, which this version does not know")
        heads, has_bias = parts.num_heads, parts.qkv.bias is not None
        return HostSizes(parts.qkv.in_features, heads, heads, parts.head_dim, has_bias)

    def install(self, module: nn.Module, core: AttentionCore) -> None:
        """Turn the module into a ``SwappedTimmAttention``."""
        module.__class__ = SwappedTimmAttention
        module.core = core

    def rehearse(self, module: nn.Module) -> None:
        """Nothing: the forward is ours."""


class SwappedTimmAttention(nn.Module):
    """timm's Attention whose core is a mechanism; (b, n, dim) to (b, n, out).

    timm calls torch's fused attention itself, so its forward is written again here, over the parts
    that the module has: norms of queries and keys, a norm and a gate of the output.
    """

    def forward(
        self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """Attend; masks as in F.scaled_dot_product_attention, of which timm lets causality win."""
        parts: Any = self
        if hasattr(self, "q_proj"):
            q, k, v = converted_streams(self, [x] * 3, parts.head_dim)
        else:
            qkv = parts.qkv(x).unflatten(-1, (3, parts.num_heads, parts.head_dim))
            q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        q, k = parts.q_norm(q), parts.k_norm(k)
        mask, bias = (past_keys(q, k), None) if is_causal else split_mask(attn_mask)
        rate = parts.attn_drop.p
        out, _ = parts.core(q, k, v, x, mask, bias, dropout=rate, is_causal=is_causal)
        out = merge_heads(out)
        if (norm := getattr(self, "norm", None)) is not None:
            out = norm(out)
        if (gate := getattr(self, "gate", None)) is not None:
            out = out * gate(x).sigmoid()
        result: Tensor = parts.proj_drop(parts.proj(out))
        return result
