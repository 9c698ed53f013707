"""Softmax attention by torch's fused kernels: biased keys, sinks, and differences of heads.

Biases of keys, forget gates of causal attention among them, are a feature of the keys. A sink is an
additional first key with the value zero; without masks and biases, ``SinkAttention`` needs no key.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nas.compiler.kernels import computed_dtype
from nas.compiler.kernels.attention import past_keys, repeat_heads
from nas.compiler.kernels.normalisers import fast_softmax
from nas.genome.primitives.gated import log_decay
from nas.genome.primitives.tensors import Gates, Key, Mask, Query, Sums, Values, hide


def softmax_attention(
    query: Query,
    key: Float[Tensor, "b g k w"],
    value: Float[Tensor, "b g k v"],
    attn_mask: Mask = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Sums:
    """Return softmax(scale query·key^T)·value, as ``F.scaled_dot_product_attention`` does.

    On a CPU torch's function is slow in 16 bits, and for keys and values of different widths. There
    the scores of all pairs are computed if that is faster.
    """
    if not query.is_cuda and enable_gqa:
        key, value = repeat_heads(key, query.shape[1]), repeat_heads(value, query.shape[1])
        enable_gqa = False
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    keys, width = key.shape[2:]
    if is_fused(query, keys, width, value.shape[-1]):
        return fused_attention(query, key, value, attn_mask, is_causal, scale, enable_gqa)
    mask = past_keys(query, key) if is_causal else attn_mask
    return fast_softmax(query @ key.mT * scale, mask) @ value


def is_fused(query: Query, keys: int, width: int, value_width: int) -> bool:
    """Whether torch's fused attention is faster than a computation of all scores."""
    widest, narrowest = max(width, value_width), min(width, value_width)
    if query.is_cuda or computed_dtype(query).itemsize > 2:
        # The narrower tensor is padded, which takes time.
        least = 0 if width == value_width else 256 if widest <= 2 * narrowest else 1024
        return query.is_cuda or keys >= least
    is_slow = widest > 2 * narrowest or widest > 64 or torch.is_grad_enabled()
    return keys >= (1024 if is_slow else 512 if widest > 32 else 256)


def fused_attention(
    query: Query,
    key: Key,
    values: Values,
    mask: Mask,
    is_causal: bool,
    scale: float,
    enable_gqa: bool = False,
) -> Sums:
    """Return softmax(scale query·key^T)·values by torch's fused attention.

    Fused kernels need one width of all three tensors, on CUDA a multiple of 8. Narrower tensors are
    padded with zeros, since torch computes other shapes explicitly (on a CPU in 2 to 6 times the
    time at 1,024 keys). ``mask`` must be None if ``is_causal``.
    """
    width = values.shape[-1]
    widest = max(width, key.shape[-1])
    widest += -widest % 8 if query.is_cuda else 0
    query, key, values = (
        x if x.shape[-1] == widest else F.pad(x, (0, widest - x.shape[-1]))
        for x in (query, key, values)
    )
    out = F.scaled_dot_product_attention(
        query, key, values, mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
    )
    return out if out.shape[-1] == width else out[..., :width]


def differential_attention(
    query: Query,
    key: Key,
    values: Values,
    attn_mask: Mask = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    factor: Float[Tensor, "p"],
) -> Sums:
    """Return ``HeadDifference`` of the weights, times the values: W_2i - factor_i W_2i+1.

    Each head sums the values of both heads of its pair, since sums are linear in the weights.
    """
    even = 2 * factor.shape[0]
    both = values[:, :even].unflatten(1, (-1, 2)).transpose(2, 3).flatten(3)
    both = both.repeat_interleave(2, dim=1)
    last = values[:, even:]
    if last.shape[1]:
        both = torch.cat((both, torch.cat((last, last), dim=-1)), dim=1)
    sums = softmax_attention(query, key, both, attn_mask, is_causal=is_causal, scale=scale)
    mixed = sums[:, :even:2] - factor.to(sums.dtype).view(-1, 1, 1) * sums[:, 1:even:2]
    mixed = mixed.unflatten(-1, (2, -1)).transpose(2, 3).flatten(1, 2)
    return torch.cat((mixed, sums[:, even:, :, : last.shape[-1]]), dim=1)


def biased_attention(
    query: Query,
    key: Key,
    values: Values,
    mask: Mask,
    scale: float = 1.0,
    is_causal: bool = False,
    *,
    gates: Gates | None = None,
    bias: Float[Tensor, "b h k 1"] | None = None,
    sink: Float[Tensor, "h"] | None = None,
) -> Sums:
    """Return softmax(scale query·key^T + bias_j - |c_i - c_j|)·values, with the gates c.

    ``sink`` is the score of an additional key whose value is zero; there are no gates then.
    ``is_causal`` hides later keys in addition to ``mask``. In causal attention c_i, which all keys
    of a query share, has no effect, and -c_j is a bias. In 16 bits the gradients of a fused
    kernel's biases, sums of differences of nearly equal terms, would be noise.
    """
    is_exact = computed_dtype(query).itemsize > 2
    if gates is not None and is_causal and is_exact:
        bias = -gates if bias is None else bias - gates
        gates = None
    is_fast = bias is None and is_fused(query, key.shape[2] + 1, key.shape[3], values.shape[3])
    if gates is None and (is_exact or is_fast):
        if sink is not None and bias is None and mask is None and has_sums(query, key, values):
            out: Sums = SinkAttention.apply(query, key, values, sink, is_causal, scale)
            return out
        return with_features(query, key, values, mask, scale, is_causal, bias=bias, sink=sink)
    scores = query * scale @ key.mT
    if bias is not None:
        scores = scores + bias.mT.to(scores.dtype)
    if gates is not None:
        scores = scores + log_decay(gates, gates.mT).to(scores.dtype)
    mask = past_keys(query, key, mask) if is_causal else mask
    if sink is None:
        return fast_softmax(scores, mask) @ values
    first = sink.to(scores.dtype).view(-1, 1, 1).expand(*scores.shape[:3], 1)
    scores = torch.cat((first, hide(scores, mask)), dim=-1)
    return torch.softmax(scores, dim=-1)[..., 1:] @ values


def with_features(
    query: Query,
    key: Key,
    values: Values,
    mask: Mask,
    scale: float = 1.0,
    is_causal: bool = False,
    *,
    bias: Float[Tensor, "b h k 1"] | None = None,
    sink: Float[Tensor, "h"] | None = None,
) -> Sums:
    """Return softmax(scale query·key^T + bias_j)·values, by torch's fused attention.

    A bias is a feature of the keys. ``sink`` is the score of an additional first key, whose value
    is zero. ``is_causal`` hides later keys in addition to ``mask``.
    """
    mask = mask if mask is None or not is_causal else past_keys(query, key, mask)
    is_causal = is_causal and mask is None
    if sink is not None:
        first = sink.view(1, -1, 1, 1).expand(key.shape[0], -1, 1, 1)
        rest = key.new_zeros(1).expand(*key.shape[:3], 1) if bias is None else bias
        bias = torch.cat((first.to(rest.dtype), rest), dim=2)
        key, values = F.pad(key, (0, 0, 1, 0)), F.pad(values, (0, 0, 1, 0))
        # A first query, which only the sink precedes, lets causality begin at the same key.
        query = F.pad(query, (0, 0, 1, 0)) if is_causal else query
        mask = None if mask is None else F.pad(mask, (1, 0), value=True)
    if bias is not None:
        query, scale = F.pad(query * scale, (0, 1), value=1.0), 1.0
        key = torch.cat((key, bias.to(key.dtype)), dim=-1)
    out = fused_attention(query, key, values, mask, is_causal, scale)
    return out[:, :, 1:] if sink is not None and is_causal else out


def has_sums(query: Query, key: Key, values: Values) -> bool:
    """Whether torch's fused attention on a CPU returns the sums of exponentials for these."""
    is_plain = query.device.type == "cpu" and not torch.compiler.is_compiling()
    is_even = key.shape[-1] == values.shape[-1] and query.numel() * key.numel() > 0
    is_alike = query.dtype == key.dtype == values.dtype
    is_alike = is_alike and query.stride(-1) == key.stride(-1) == values.stride(-1) == 1
    return is_plain and is_even and is_alike and torch.backends.cuda.flash_sdp_enabled()


class SinkAttention(torch.autograd.Function):
    """Attention with a sink t: out sigmoid(l - t), with l = log sum_j exp(s_ij) of each query.

    The kernel's backward pass computes the weights, exp(s_ij - l), from its operand l, and the sum
    of their gradients from its operand out. If these are the results with the sink, so are its
    gradients. Second derivatives raise an error.
    """

    @staticmethod
    def forward(
        ctx: "Any",
        query: Query,
        key: Key,
        values: Values,
        sink: Float[Tensor, "h"],
        is_causal: bool,
        scale: float,
    ) -> Sums:
        score = sink.view(-1, 1)
        out, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, values, 0.0, is_causal, scale=scale
        )
        share = torch.sigmoid(sums - score)
        out = out * share.unsqueeze(-1).to(out.dtype)
        total = torch.logaddexp(sums, score.to(sums.dtype).expand_as(sums))
        ctx.save_for_backward(query, key, values, out, total, share)
        ctx.options = is_causal, scale
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: "Any", gradient: Sums) -> tuple[Tensor | None, ...]:
        query, key, values, out, total, share = ctx.saved_tensors
        is_causal, scale = ctx.options
        to_operands = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            gradient, query, key, values, out, total, 0.0, is_causal, scale=scale
        )
        products = (gradient * out).sum(dim=-1)
        return *to_operands, -(products * (1.0 - share)).sum(dim=(0, 2)), None, None
