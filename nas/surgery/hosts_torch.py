"""Hosts of torch: nn.MultiheadAttention, wherever it stands.

nn.TransformerEncoderLayer and DecoderLayer, torchvision's ViT and many others hold one. The
module becomes a subclass of its class, as torch.nn.utils.parametrize does it, and keeps its
parameters under their names.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas.kernels.runtime import merge_heads, split_heads
from nas.surgery.core import AttentionCore, HostSizes, split_mask
from nas.surgery.hosts import refusal


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
        q, k, v = (split_heads(t, self.num_heads) for t in self._projected(tokens))
        out, weights = self.core(q, k, v, tokens[0], mask, bias, dropout=self.dropout)
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
        packed: Any = self.in_proj_weight
        weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        if packed is not None:
            weights = packed.chunk(3)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        return [F.linear(t, w, b) for t, w, b in zip(tokens, weights, biases, strict=True)]

    def _masks(
        self, query: Tensor, attn_mask: Tensor | None, padding: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Torch's two masks as one of each kind: True where allowed, and added to scores."""
        batch = query.shape[0]
        if attn_mask is not None and attn_mask.dim() == 3:
            attn_mask = attn_mask.view(batch, self.num_heads, *attn_mask.shape[1:])
        if padding is not None:
            padding = padding.reshape(batch, 1, 1, -1)
        found = [
            split_mask(~m if m.dtype == torch.bool else m)
            for m in (attn_mask, padding)
            if m is not None
        ]
        masks = [mask for mask, _ in found if mask is not None]
        biases = [bias for _, bias in found if bias is not None]
        mask = masks[0] & masks[1] if len(masks) == 2 else next(iter(masks), None)
        bias = biases[0] + biases[1] if len(biases) == 2 else next(iter(biases), None)
        return mask, bias

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
