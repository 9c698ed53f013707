"""Hosts: the kinds of attention modules that a mechanism can replace; the hosts of torch and timm.

torch.nn.MultiheadAttention also occurs in nn.TransformerEncoderLayer and in torchvision's ViT. A
swapped module gets another class and keeps its parameters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import reduce
from typing import Any, ClassVar, Final, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas.common.errors import NasError
from nas.compiler.kernels.attention import merge_heads, past_keys, split_heads
from nas.genome import STREAMS
from nas.surgery.conversion import Linear
from nas.surgery.core import AttentionCore, HostSizes, split_mask

CORE: Final = "core"  # the attribute of the mechanism in a swapped module, and in the state_dict
_TIMM: Final = ("timm.layers.attention", "timm.models.vision_transformer")
_TIMM_PARTS: Final = {"qkv", "q_norm", "k_norm", "attn_drop", "proj", "proj_drop", CORE}


class Host(ABC):
    """A kind of attention module, and how to replace the attention of such a module.

    ``install`` and ``replace`` change the module in place, so that hooks, parameters and references
    of the module stay valid; the other methods do not change it.
    """

    about: ClassVar[str]  # the library and class of the modules, for messages
    # The modules that project queries, keys, values and the output.
    names: ClassVar[tuple[str, ...]] = ("q_proj", "k_proj", "v_proj", "o_proj")

    @abstractmethod
    def recognises(self, module: nn.Module) -> bool:
        """Return whether a module is of this kind, with its own attention or with a mechanism."""

    @abstractmethod
    def measure(self, module: nn.Module) -> HostSizes:
        """Return the sizes of a module's attention; NasError if a swap would not keep all."""

    @abstractmethod
    def install(self, module: nn.Module, core: AttentionCore) -> None:
        """Replace a module's attention by a mechanism, whose attribute is called ``core``."""

    def projections(self, module: nn.Module) -> dict[str, Linear]:
        """Return the projections ``q``, ``k``, ``v`` and ``o``."""
        parts = (getattr(module, name) for name in self.names)
        return {s: (part.weight, part.bias) for s, part in zip((*STREAMS, "o"), parts, strict=True)}

    def replace(self, module: nn.Module, parts: Mapping[str, nn.Module]) -> None:
        """Replace projections; ``parts`` has ``q``, ``k`` and ``v``, and ``o`` if it changes."""
        for stream, name in zip((*STREAMS, "o"), self.names, strict=True):
            if stream in parts:
                setattr(module, name, parts[stream])


def refusal(module: nn.Module, reason: str) -> NasError:
    """Return the error for a module whose attention cannot be replaced; callers add its name."""
    return NasError(f"{type(module).__name__} {reason}; leave it out by `where`.")


def split_packed(weight: Tensor, bias: Tensor | None) -> dict[str, Linear]:
    """Return queries, keys and values of a projection that holds them one below the other."""
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    return dict(zip(STREAMS, zip(weight.chunk(3), biases, strict=True), strict=True))


def _converted_streams(module: Any, tokens: list[Tensor]) -> list[Tensor]:
    streams = [getattr(module, f"{s}_proj")(t) for s, t in zip(STREAMS, tokens, strict=True)]
    widths = module.core.widths.values()
    return [split_heads(t, t.shape[-1] // w) for t, w in zip(streams, widths, strict=True)]


class _TorchHost(Host):
    """The host for nn.MultiheadAttention, not for subclasses, which may compute something else."""

    about = "torch.nn.MultiheadAttention"
    names = ("q_proj", "k_proj", "v_proj", "out_proj")

    def recognises(self, module: nn.Module) -> bool:
        return type(module) in (nn.MultiheadAttention, SwappedMultiheadAttention)

    def measure(self, module: nn.Module) -> HostSizes:
        assert isinstance(module, nn.MultiheadAttention)
        if module.bias_k is not None or module.add_zero_attn:
            name = "add_zero_attn" if module.bias_k is None else "add_bias_kv"
            raise refusal(module, f"has {name}: it attends to a key that is not a token")
        if module.in_proj_weight is None:
            raise refusal(module, "has kdim or vdim: its keys or values have another width")
        heads, has_bias = module.num_heads, module.in_proj_bias is not None
        sizes = module.embed_dim, heads, heads, module.head_dim
        return HostSizes(*sizes, has_bias, may_narrow=True)

    def install(self, module: nn.Module, core: AttentionCore) -> None:
        module.__class__ = SwappedMultiheadAttention
        module.core = core
        # Otherwise encoder layers in eval mode compute attention without calling this module.
        module._qkv_same_embed_dim = False  # type: ignore[assignment]

    def projections(self, module: nn.Module) -> dict[str, Linear]:
        assert isinstance(module, nn.MultiheadAttention)
        packed = split_packed(module.in_proj_weight, module.in_proj_bias)
        return packed | {"o": (module.out_proj.weight, module.out_proj.bias)}

    def replace(self, module: nn.Module, parts: Mapping[str, nn.Module]) -> None:
        super().replace(module, parts)
        module.in_proj_weight = module.in_proj_bias = None  # type: ignore[assignment]


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
        if is_causal and attn_mask is None:
            raise RuntimeError("is_causal is a hint about attn_mask: give the causal attn_mask too")
        is_batched = query.dim() == 3
        tokens = [query, key, value]
        if not is_batched:
            tokens = [t.unsqueeze(0) for t in tokens]
        elif not self.batch_first:
            tokens = [t.transpose(0, 1) for t in tokens]
        mask, bias = self._masks(tokens[0], attn_mask, key_padding_mask)
        out, weights = self.core(
            *(*self._projected(tokens), tokens[0], mask, bias),
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
            return _converted_streams(self, tokens)
        packed = split_packed(self.in_proj_weight, self.in_proj_bias)
        streams = (F.linear(t, *part) for t, part in zip(tokens, packed.values(), strict=True))
        return [split_heads(t, self.num_heads) for t in streams]

    def _masks(
        self, query: Tensor, attn_mask: Tensor | None, padding: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return torch's two masks as one mask (True where allowed) and a bias of the scores."""
        if attn_mask is not None and attn_mask.dim() == 3:
            attn_mask = attn_mask.view(len(query), self.num_heads, *attn_mask.shape[1:])
        if padding is not None:
            padding = padding.reshape(len(query), 1, 1, -1)
        zero = query.new_zeros(())
        present = [m for m in (attn_mask, padding) if m is not None]
        summed = [zero.masked_fill(m, -torch.inf) if m.dtype == torch.bool else m for m in present]
        return split_mask(reduce(torch.add, summed) if summed else None)


class _TimmHost(Host):
    """The host for timm.layers.Attention, not for subclasses, which may compute something else."""

    about = "timm.layers.Attention"
    names = ("q_proj", "k_proj", "v_proj", "proj")

    def recognises(self, module: nn.Module) -> bool:
        kind = type(module)
        is_timm = kind.__module__ in _TIMM and kind.__qualname__ == "Attention"
        return is_timm or kind is SwappedTimmAttention

    def measure(self, module: nn.Module) -> HostSizes:
        attention: Any = module
        parts = {n for n, part in module.named_children() if not isinstance(part, nn.Identity)}
        if unknown := sorted(parts - _TIMM_PARTS):
            raise refusal(module, f"has {', '.join(unknown)}, which a swap does not keep")
        heads, has_bias = attention.num_heads, attention.qkv.bias is not None
        sizes = attention.qkv.in_features, heads, heads, attention.head_dim
        return HostSizes(*sizes, has_bias, may_narrow=not parts & {"q_norm", "k_norm"})

    def install(self, module: nn.Module, core: AttentionCore) -> None:
        module.__class__ = SwappedTimmAttention
        module.core = core

    def projections(self, module: nn.Module) -> dict[str, Linear]:
        parts: Any = module
        packed = split_packed(parts.qkv.weight, parts.qkv.bias)
        return packed | {"o": (parts.proj.weight, parts.proj.bias)}

    def replace(self, module: nn.Module, parts: Mapping[str, nn.Module]) -> None:
        super().replace(module, parts)
        del module.qkv


class SwappedTimmAttention(nn.Module):
    """timm's Attention with another mechanism; maps (b, n, dim) to (b, n, out).

    The forward repeats timm's, which calls torch's fused attention and cannot call a mechanism.
    """

    def forward(
        self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """Return the attention's outputs; ``attn_mask`` is ignored if ``is_causal`` is true."""
        parts: Any = self
        if hasattr(self, "q_proj"):
            q, k, v = _converted_streams(self, [x] * 3)
        else:
            q, k, v = (split_heads(t, parts.num_heads) for t in parts.qkv(x).chunk(3, dim=-1))
        q, k = parts.q_norm(q), parts.k_norm(k)
        mask, bias = (past_keys(q, k), None) if is_causal else split_mask(attn_mask)
        rate = parts.attn_drop.p
        out, _ = parts.core(q, k, v, x, mask, bias, dropout=rate, is_causal=is_causal)
        return cast("Tensor", parts.proj_drop(parts.proj(merge_heads(out))))


TORCH_HOSTS: Final = (_TorchHost(), _TimmHost())
