"""What a swapped module of Hugging Face's transformers runs.

Such a module projects, rotates and caches, then looks up by its config who attends. It has got a
config of its own that names ``attend``, and hooks that keep the block's tokens and rotation until
then, so the model, its masks and its other layers stay as they are.
"""

from __future__ import annotations

import copy
import inspect
from typing import Any, Final

import torch
from torch import Tensor, nn

from nas.errors import NasError
from nas.surgery.core import causal_mask, scale_queries, split_mask

NAME: Final = "nas"
TABLE: Final = "ALL_ATTENTION_FUNCTIONS"
ROTATION: Final = "apply_rotary_pos_emb"
SUPPORTED: Final = ("eager", "sdpa")
REFUSED: Final = {"s_aux": "attention sinks", "cache": "a paged cache"}


def point_to_us(module: nn.Module, core: nn.Module) -> None:
    """Let the module attend by a core, by a config of its own; the model's is not touched."""
    table_of(module).register(NAME, attend)
    host: Any = module
    host.core, host.host_config, host.config = core, host.config, copy.copy(host.config)
    # The public attribute would also rename the attention of shared configs below this one.
    host.config._attn_implementation_internal = NAME


def hand_over(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Keep the block's tokens, and the rotation of their positions, until it attends."""
    if NAME not in (table := table_of(module)):
        table.register(NAME, attend)  # a model that was unpickled in a new process
    given = dict(zip(arguments_of(module), args, strict=False)) | kwargs
    host: Any = module
    host.nas_given = (given["hidden_states"], given.get("position_embeddings"))


def forget(module: nn.Module, args: tuple[Any, ...], result: Any) -> None:
    """Drop what was kept: the graph of this pass must not outlive it."""
    host: Any = module
    host.nas_given = None


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    position_bias: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend by the module's core, as the AttentionInterface wants it; (b, n, h, w) and weights.

    Windows are in the mask already. Without a mask a causal module is causal under ``sdpa``, whose
    masks are left out where that says the same; under ``eager`` no mask means none.

    Raises:
        NasError: the model changed since the swap to something that a mechanism would drop.
    """
    host: Any = module
    tokens, turns = host.nas_given
    implementation = host.host_config._attn_implementation
    dropped = [meaning for name, meaning in REFUSED.items() if others.get(name) is not None]
    if dropped or implementation not in SUPPORTED:
        raise NasError(
            f"{type(module).__name__}, which was swapped, met {', '.join(dropped)}"
            f"{'' if dropped else repr(implementation)}; expected the model to attend by one of "
            f"{', '.join(SUPPORTED)}, as at the swap."
        )
    mask, bias = split_mask(attention_mask)
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if attention_mask is None and causal and query.shape[2] > 1 and implementation == "sdpa":
        mask = causal_mask(query, key)
    if position_bias is not None:
        bias = position_bias if bias is None else bias + position_bias
    if scaling is not None:
        query = scale_queries(query, scaling)

    def rotate(rows: Tensor) -> Tensor:
        return rotated(module, rows, turns)

    out, weights = host.core(
        query, key, value, tokens, mask, bias, dropout=dropout, softcap=softcap, rotate=rotate
    )
    return out.transpose(1, 2).contiguous(), weights


def rotated(module: nn.Module, rows: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    """Rows (b, any, n, w) turned by the model's own function, in its own layout.

    Args:
        turns: cos and sin of the tokens, (1 or b, n, r); where r < w the first r features turn.
    """
    width = turns[0].shape[-1]
    part, rest = rows[..., :width], rows[..., width:]
    part = forward_of(module).__globals__[ROTATION](part, part[:, :1], *turns)[0]
    return torch.cat((part, rest), dim=-1)


def forward_of(module: nn.Module) -> Any:
    """The function that a call of the module runs, without what decorates it."""
    return inspect.unwrap(type(module).forward)


def arguments_of(module: nn.Module) -> tuple[str, ...]:
    """The names of its positional arguments, in order."""
    code = forward_of(module).__code__
    names: tuple[str, ...] = code.co_varnames[1 : code.co_argcount]
    return names


def table_of(module: nn.Module) -> Any:
    """The AttentionInterface that the module asks."""
    return forward_of(module).__globals__[TABLE]
