"""The host for attention of Hugging Face's transformers: GPT-2, Llama and its like, ViT.

Their modules compute queries, keys and values, and pass them to the attention function whose name
is in their config. A swapped module has a copy of the config with the name of ``attend``, and hooks
that store the module's inputs for ``attend``. The rest of the model does not change.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, cast

import torch
from torch import Tensor, nn

from nas.common.errors import NasError
from nas.compiler.kernels.attention import past_keys
from nas.genome import STREAMS
from nas.surgery.conversion import Linear
from nas.surgery.core import AttentionCore, HostSizes, split_mask
from nas.surgery.hosts import Host, refusal, split_packed

NAME: Final = "nas"


class _TransformersHost(Host):
    """What the hosts of transformers have in common."""

    classes: tuple[str, ...]

    def recognises(self, module: nn.Module) -> bool:
        kind = type(module)
        return kind.__name__ in self.classes and kind.__module__.startswith("transformers.models.")

    def install(self, module: nn.Module, core: AttentionCore) -> None:
        host: Any = module
        host.core, host.config = core, copy.copy(host.config)
        # The public attribute would also rename the attention of shared configs below this one.
        host.config._attn_implementation_internal = NAME
        module.register_forward_pre_hook(_keep_inputs, with_kwargs=True)
        module.register_forward_hook(_forget_inputs, always_call=True)


class _LlamaHost(_TransformersHost):
    """The host for attention with four separate projections, and RoPE unless it is a ViT's."""

    classes = (
        "LlamaAttention", "MistralAttention", "Qwen2Attention", "Qwen3Attention", "GemmaAttention",
        "ViTAttention",
    )  # fmt: skip
    about = f"transformers ({', '.join(classes)})"

    def measure(self, module: nn.Module) -> HostSizes:
        host: Any = module
        config, is_image = host.config, type(module).__name__ == "ViTAttention"
        if getattr(host, "sliding_window", getattr(config, "sliding_window", None)) is not None:
            raise refusal(module, "has a sliding window, whose cache drops the oldest tokens")
        heads = config.num_attention_heads
        return HostSizes(
            dim=host.q_proj.in_features,
            heads=heads,
            kv_heads=getattr(config, "num_key_value_heads", heads),
            width=host.head_dim,
            has_bias=host.q_proj.bias is not None,
            is_rotated=not is_image,
            is_causal=not is_image,
        )


class _GPT2Host(_TransformersHost):
    """The host for GPT-2's attention, whose projections have transposed weights in two modules."""

    classes = ("GPT2Attention",)
    about = "transformers (GPT2Attention)"

    def measure(self, module: nn.Module) -> HostSizes:
        host: Any = module
        if host.is_cross_attention:
            raise refusal(module, "is cross-attention")
        heads = host.num_heads
        return HostSizes(host.embed_dim, heads, heads, host.head_dim, True, is_causal=True)

    def projections(self, module: nn.Module) -> dict[str, Linear]:
        host: Any = module
        packed = split_packed(host.c_attn.weight.T, host.c_attn.bias)
        return packed | {"o": (host.c_proj.weight.T, host.c_proj.bias)}

    def replace(self, module: nn.Module, parts: Mapping[str, nn.Module]) -> None:
        host: Any = module
        streams = {stream: parts[stream] for stream in STREAMS}
        widths = (getattr(part, "out_features", host.embed_dim) for part in streams.values())
        host.split_size = list(widths)
        host.c_attn = Fused(streams)
        if "o" in parts:
            host.c_proj = parts["o"]


class Fused(nn.ModuleDict):
    """Projections with concatenated outputs, (b, n, dim) to (b, n, sum of the widths)."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply all projections to x."""
        return torch.cat([part(x) for part in self.values()], dim=-1)


def _keep_inputs(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Store the module's tokens and their rotation until it attends (a forward pre-hook)."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, attend)  # here, since models are unpickled in new processes
    host: Any = module
    tokens = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
    host.nas_inputs = tokens, kwargs.get("position_embeddings")


def _forget_inputs(module: nn.Module, args: tuple[Any, ...], result: Any) -> None:
    """Delete the stored inputs, which hold the autograd graph of the call (a forward hook)."""
    host: Any = module
    host.nas_inputs = None


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """Return outputs (b, n, h, w) and attention weights of the mechanism in a module.

    A causal module without a mask is causal, since transformers omits purely causal masks. NasError
    is raised for the mask of another implementation of attention than eager and sdpa.
    """
    if attention_mask is not None and attention_mask.dim() != 4:
        raise NasError(
            f"{type(module).__name__}, which was swapped, needs the masks of eager or sdpa "
            "attention; call model.set_attn_implementation('sdpa')."
        )
    host: Any = module
    tokens, rotation = host.nas_inputs
    is_causal = host.core.sizes.is_causal
    mask, bias = split_mask(attention_mask)
    if attention_mask is None and is_causal and query.shape[2] > 1:
        mask = past_keys(query, key)
    if scaling is not None:
        query = query * (scaling * query.shape[-1] ** 0.5)  # the core divides by the root
    out, weights = host.core(
        *(query, key, value, tokens, mask, bias),
        dropout=dropout,
        rotate=partial(_rotated, module, rotation=rotation),
        is_causal=is_causal,
    )
    return out.transpose(1, 2).contiguous(), weights


def _rotated(module: nn.Module, rows: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    file: Any = inspect.getmodule(type(module))
    return cast("Tensor", file.apply_rotary_pos_emb(rows, rows[:, :1], *rotation)[0])


TRANSFORMERS_HOSTS: Final = (_LlamaHost(), _GPT2Host())
