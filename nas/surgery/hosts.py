"""Hosts: the kinds of attention modules that a mechanism can replace; the hosts of torch and timm.

torch.nn.MultiheadAttention also occurs in nn.TransformerEncoderLayer, nn.TransformerDecoderLayer
and torchvision's ViT. A swapped module gets another class and keeps its parameters. This module
does not import timm. Packages add hosts of other libraries under the entry point group
``nas.hosts``; built-in hosts have precedence.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, Final, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas.common.errors import NasError
from nas.common.registry import Registry
from nas.compiler.kernels.attention import merge_heads, past_keys, split_heads
from nas.genome import STREAMS
from nas.surgery.core import AttentionCore, HostSizes, split_mask

CORE: Final = "core"  # the attribute of the mechanism in a swapped module, and in the state_dict
_TIMM: Final = ("timm.layers.attention", "timm.models.vision_transformer")
_TIMM_PARTS: Final = {"qkv", "q_norm", "k_norm", "attn_drop", "norm", "gate", "proj", "proj_drop"}


class Host(Protocol):
    """A kind of attention module, and how to replace the attention of such a module.

    ``measure`` does not change the module. ``install`` changes the module in place, so that hooks,
    parameters and references of the module stay valid. The names of new parameters begin with
    ``core.``.
    """

    @property
    def about(self) -> str:
        """The library and class of the modules, for messages."""
        ...

    def recognises(self, module: nn.Module) -> bool:
        """Return whether a module is of this kind, with its own attention or with a mechanism."""
        ...

    def measure(self, module: nn.Module) -> HostSizes:
        """Return the sizes of a module's attention.

        Raises:
            NasError: the module computes something that a mechanism would not keep.
        """
        ...

    def install(self, module: nn.Module, core: AttentionCore) -> None:
        """Replace a module's attention by a mechanism."""
        ...

    def dry_run(self, module: nn.Module) -> None:
        """Call once a module whose attention was replaced; raise NasError if the call fails."""


HOSTS: Final[Registry[type[Host]]] = Registry(
    "host", "nas.hosts", modules=("nas.surgery.hosts", "nas.surgery.hosts_transformers")
)


def refusal(module: nn.Module, reason: str) -> NasError:
    """Return the error for a module whose attention cannot be replaced; callers add its name."""
    return NasError(f"{type(module).__name__} {reason}")


def converted_streams(module: Any, tokens: list[Tensor]) -> list[Tensor]:
    """Apply a module's separate projections to the tokens; return queries, keys and values.

    Each result has the shape (b, heads, n, width), with the heads and the width of the projection.
    """
    streams = [getattr(module, f"{s}_proj")(t) for s, t in zip(STREAMS, tokens, strict=True)]
    widths = map(module.core.stream_width, STREAMS)
    return [split_heads(t, t.shape[-1] // w) for t, w in zip(streams, widths, strict=True)]


@HOSTS.register("torch")
class _TorchHost(Host):
    """The host for nn.MultiheadAttention.

    Subclasses are not recognised, since they could compute something else.
    """

    about = "torch.nn.MultiheadAttention"

    def recognises(self, module: nn.Module) -> bool:
        return type(module) in (nn.MultiheadAttention, SwappedMultiheadAttention)

    def measure(self, module: nn.Module) -> HostSizes:
        assert isinstance(module, nn.MultiheadAttention)
        if module.bias_k is not None or module.add_zero_attn:
            name = "add_zero_attn" if module.bias_k is None else "add_bias_kv"
            raise refusal(module, f"has {name}: it attends to a key that is not a token")
        heads, has_bias = module.num_heads, module.in_proj_bias is not None
        is_cross = {module.kdim, module.vdim} != {module.embed_dim}
        sizes = module.embed_dim, heads, heads, module.head_dim
        return HostSizes(*sizes, has_bias=has_bias, is_cross=is_cross, may_narrow=True)

    def install(self, module: nn.Module, core: AttentionCore) -> None:
        module.__class__ = SwappedMultiheadAttention
        module.core = core
        # Otherwise encoder layers in eval mode compute attention without calling this module.
        module._qkv_same_embed_dim = False  # type: ignore[assignment]


class SwappedMultiheadAttention(nn.MultiheadAttention):
    """nn.MultiheadAttention that attends by a mechanism; masks and results are as in torch.

    A row without visible keys gives zeros, where torch gives NaN with ``need_weights``.
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
        """Return outputs and weights; shapes and masks (True is masked out) are as in torch."""
        if query.is_nested:
            return self._nested(query, key, value)
        if is_causal and attn_mask is None:
            raise RuntimeError("is_causal is a hint about attn_mask: give the causal attn_mask too")
        is_batched = query.dim() == 3
        tokens = [query, key, value]
        if not is_batched:
            tokens = [t.unsqueeze(0) for t in tokens]
        elif not self.batch_first:
            tokens = [t.transpose(0, 1) for t in tokens]
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

    def _projected(self, tokens: list[Tensor]) -> list[Tensor]:
        if hasattr(self, "q_proj"):
            return converted_streams(self, tokens)
        packed: Any = self.in_proj_weight
        weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        if packed is not None:
            weights = packed.chunk(3)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        streams = (F.linear(t, w, b) for t, w, b in zip(tokens, weights, biases, strict=True))
        return [split_heads(t, self.num_heads) for t in streams]

    def _masks(
        self, query: Tensor, attn_mask: Tensor | None, padding: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return torch's two masks as one mask (True where allowed) and a bias of the scores."""
        batch = query.shape[0]
        if attn_mask is not None and attn_mask.dim() == 3:
            attn_mask = attn_mask.view(batch, self.num_heads, *attn_mask.shape[1:])
        if padding is not None:
            padding = padding.reshape(batch, 1, 1, -1)
        present = [m for m in (attn_mask, padding) if m is not None]
        pairs = [split_mask(~m if m.dtype == torch.bool else m) for m in present]
        masks = [mask for mask, _ in pairs if mask is not None]
        biases = [bias for _, bias in pairs if bias is not None]
        return (
            reduce(torch.logical_and, masks) if masks else None,
            reduce(torch.add, biases) if biases else None,
        )

    def _nested(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, None]:
        """Return the outputs for a nested tensor, which torch's encoders pass in eval mode."""
        if query is not key or key is not value:
            raise RuntimeError("nested tensors: expected one for query, key and value")
        lengths = [len(sequence) for sequence in query.unbind()]
        padded = query.to_padded_tensor(0.0)
        positions = torch.arange(padded.shape[1], device=padded.device)
        padding = positions >= torch.tensor(lengths, device=padded.device)[:, None]
        out, _ = self.forward(padded, padded, padded, padding, need_weights=False)
        rows = [row[:length] for row, length in zip(out, lengths, strict=True)]
        return torch.nested.as_nested_tensor(rows, layout=query.layout), None


@HOSTS.register("timm")
class _TimmHost(Host):
    """The host for timm.layers.Attention.

    Subclasses are not recognised, since they could compute something else.
    """

    about = "timm.layers.Attention"

    def recognises(self, module: nn.Module) -> bool:
        kind = type(module)
        is_timm = kind.__module__ in _TIMM and kind.__qualname__ == "Attention"
        return is_timm or kind is SwappedTimmAttention

    def measure(self, module: nn.Module) -> HostSizes:
        parts: Any = module
        unknown = sorted(set(dict(module.named_children())) - _TIMM_PARTS - {CORE})
        if unknown:
            raise refusal(module, f"has {', '.join(unknown)}, which this version does not know")
        heads, has_bias = parts.num_heads, parts.qkv.bias is not None
        has_norms = any(not isinstance(norm, nn.Identity) for norm in (parts.q_norm, parts.k_norm))
        sizes = parts.qkv.in_features, heads, heads, parts.head_dim
        return HostSizes(*sizes, has_bias=has_bias, may_narrow=not has_norms)

    def install(self, module: nn.Module, core: AttentionCore) -> None:
        module.__class__ = SwappedTimmAttention
        module.core = core


class SwappedTimmAttention(nn.Module):
    """timm's Attention with another mechanism; maps (b, n, dim) to (b, n, out).

    timm's forward calls torch's fused attention and cannot call a mechanism. This class therefore
    repeats timm's forward with all optional parts: norms of queries and keys, a norm and a gate of
    the output.
    """

    def forward(
        self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """Return the attention's outputs; ``attn_mask`` is ignored if ``is_causal`` is true."""
        parts: Any = self
        if hasattr(self, "q_proj"):
            q, k, v = converted_streams(self, [x] * 3)
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
