"""Hosts of Hugging Face's transformers: every attention that asks its AttentionInterface.

Such a module projects, rotates and caches, then looks up by its config who attends. What it gives
to whoever attends is found by trying it on a few tokens, not by its class: head counts, widths,
rotation, and whether softmax attention is all that it does. A swapped one has a config of its own
that names ``attend``, and hooks that keep the block's tokens and rotation until then, so the model,
its masks and its other layers stay as they are.
"""

from __future__ import annotations

import copy
import inspect
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn

from nas.common.errors import GenomeError, NasError
from nas.compiler.kernels.runtime import past_keys
from nas.genome.mechanisms import MECHANISMS
from nas.surgery.core import AttentionCore, HostSizes
from nas.surgery.hosts import CORE, HOSTS, refusal
from nas.surgery.masks import scale_queries, split_mask

NAME: Final = "nas"
TABLE: Final = "ALL_ATTENTION_FUNCTIONS"
ROTATION: Final = "apply_rotary_pos_emb"
SUPPORTED: Final = ("eager", "sdpa")
REFUSED: Final = {"s_aux": "attention sinks", "cache": "a paged cache"}
_ANGLES: Final = (0.3, 1.1, 2.3)
_CROSSED: Final = ("encoder_hidden_states", "key_value_states")  # arguments: another sequence


@HOSTS.register("transformers")
class TransformersHost:
    """Attention of transformers that looks up its AttentionInterface."""

    about = "transformers (attention that goes through its AttentionInterface)"

    def recognises(self, module: nn.Module) -> bool:
        """Whether its forward asks the interface."""
        code = getattr(forward_of(module), "__code__", None)
        return code is not None and TABLE in code.co_names

    def measure(self, module: nn.Module) -> HostSizes:
        """The sizes that a trial shows; refuses what a mechanism would drop."""
        implementation = module.config._attn_implementation  # type: ignore[union-attr]
        if implementation not in SUPPORTED:
            raise refusal(
                module,
                f"attends by {implementation!r}, whose masks are of another kind; call "
                "model.set_attn_implementation('sdpa') first",
            )
        if hasattr(module, "sinks"):
            raise refusal(module, f"has {REFUSED['s_aux']}, which a mechanism would drop")
        if any(p.is_meta for p in module.parameters()):
            raise refusal(module, "has no weights yet to try (they are on the meta device)")
        dim = _dim(module)
        query, key = _try(module, dim, _ANGLES)
        sliding = getattr(module.config, "sliding_window", None)
        return HostSizes(
            dim=dim,
            heads=query.shape[1],
            kv_heads=key.shape[1],
            width=query.shape[3],
            has_bias=any(name.endswith("bias") for name, _ in module.named_parameters()),
            is_rotated=_is_rotated(module, dim, query),
            is_causal=bool(getattr(module, "is_causal", True)) and not _is_crossed(module),
            is_sliding=getattr(module, "sliding_window", sliding) is not None,
        )

    def install(self, module: nn.Module, core: AttentionCore) -> None:
        """Let the module look us up, and hand over what it does not give to who attends."""
        point_to_us(module, core)
        module.register_forward_pre_hook(hand_over, with_kwargs=True)
        module.register_forward_hook(forget, always_call=True)

    def rehearse(self, module: nn.Module) -> None:
        """Attend to three tokens: not every module takes projections of other sizes."""
        host: Any = module.eval()
        try:
            with torch.no_grad():
                host(**_trial_arguments(module, host.core.sizes.dim, _ANGLES))
        except Exception as error:
            raise GenomeError(
                f"{type(module).__name__} cannot work with other heads or projections than it was "
                "made with; expected a mechanism with all of them."
            ) from error


class _Trial(nn.Module):
    """A core of softmax attention at whatever sizes come; remembers queries and keys."""

    needs_mask = False

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[Tensor, Tensor]] = []

    def forward(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor, *rest: Any, **asked: Any) -> Any:
        """Attend as an ``AttentionCore`` does."""
        self.seen.append((q, k))
        sizes = HostSizes(x.shape[-1], q.shape[1], k.shape[1], q.shape[3])
        return AttentionCore(MECHANISMS["mha"].genome, sizes)(q, k, v, x, *rest, **asked)


def _try(module: nn.Module, dim: int, angles: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """Queries and keys of three tokens, rotated by these angles, as the module gives them.

    Refuses a module that does not attend to them by softmax alone.
    """
    given = _trial_arguments(module, dim, angles)
    modes = {part: part.training for part in module.modules()}
    trial, before = _Trial(), module.config
    try:
        module.eval()
        with torch.no_grad():
            expected = module.forward(**given)[0]
            point_to_us(module, trial)
            hand_over(module, (), given)
            found = module.forward(**given)[0]
    except Exception as error:
        raise refusal(
            module, "attends in a way that is not known: a trial with three tokens fails"
        ) from error
    finally:
        module.config = before
        for name in (CORE, "host_config", "nas_given"):
            if hasattr(module, name):
                delattr(module, name)
        for part, mode in modes.items():
            part.training = mode
    if not trial.seen or not _is_close(found, expected):
        raise refusal(module, "does more than softmax attention, which a mechanism would drop")
    return trial.seen[0]


def _trial_arguments(module: nn.Module, dim: int, angles: tuple[float, ...]) -> dict[str, Any]:
    like = next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))
    tokens = torch.arange(len(angles) * dim, device=like.device).sin().to(like.dtype)
    tokens = tokens.reshape(1, len(angles), dim)
    known: dict[str, Any] = {
        "hidden_states": tokens,
        "position_embeddings": _turns(module, angles, like),
    }
    if _is_crossed(module):
        known |= dict.fromkeys(_CROSSED, tokens)
    parameters = list(inspect.signature(forward_of(module)).parameters.values())[1:]
    return {
        p.name: known.get(p.name)
        for p in parameters
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        and (p.name in known or p.default is p.empty)
    }


def _is_crossed(module: nn.Module) -> bool:
    return bool(getattr(module, "is_cross_attention", "Cross" in type(module).__name__))


def _is_rotated(module: nn.Module, dim: int, turned: Tensor) -> bool:
    """Whether queries turn with their positions; refuses a rotation that we could not repeat."""
    names = {name.lower() for name in forward_of(module).__code__.co_names}
    if "position_embeddings" not in arguments_of(module):
        if any("rotary" in name or "rope" in name for name in names):
            raise refusal(module, "rotates queries by something other than position_embeddings")
        return False
    plain, _ = _try(module, dim, (0.0,) * len(_ANGLES))
    if torch.equal(turned, plain):
        return False
    again = None
    if ROTATION in forward_of(module).__globals__:
        again = rotated(module, plain, _turns(module, _ANGLES, plain))
    if again is None or not _is_close(again, turned):
        raise refusal(module, f"rotates queries in another way than {ROTATION} of its file")
    return True


def _is_close(found: Tensor, expected: Tensor) -> bool:
    """Equal but for rounding: 6e-6 of the largest number in float32."""
    tolerance = torch.finfo(expected.dtype).eps ** 0.75 * float(expected.abs().max())
    return bool((found - expected).abs().max() <= tolerance)


def _turns(module: nn.Module, angles: tuple[float, ...], like: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin of one angle a token, for all of its pairs: (1, n, w), the same in any layout."""
    names = ("rotary_ndims", "head_dim", "head_size", "attention_head_size")
    width = next((getattr(module, name) for name in names if hasattr(module, name)), 1)
    wide = torch.tensor(angles, device=like.device)[None, :, None].expand(1, -1, width)
    return wide.cos().to(like.dtype), wide.sin().to(like.dtype)


def _dim(module: nn.Module) -> int:
    """Features of the tokens: what the module's first projection reads."""
    for part in module.modules():
        for name in ("in_features", "nx"):
            if isinstance(size := getattr(part, name, None), int):
                return size
    raise refusal(module, "has no projection whose input width can be read")


def point_to_us(module: nn.Module, core: nn.Module) -> None:
    """Let the module attend by a core, by a config of its own; the model's is not touched."""
    host: Any = module
    host.core, host.host_config, host.config = core, host.config, copy.copy(host.config)
    # The public attribute would also rename the attention of shared configs below this one.
    host.config._attn_implementation_internal = NAME


def hand_over(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Keep the block's tokens, and the rotation of their positions, until it attends."""
    # Each time: the model may have been unpickled in a new process.
    forward_of(module).__globals__[TABLE].register(NAME, attend)
    given = dict(zip(arguments_of(module), args, strict=False)) | kwargs
    host: Any = module
    is_crossed = any(given.get(name) is not None for name in _CROSSED)
    host.nas_given = (given["hidden_states"], given.get("position_embeddings"), is_crossed)


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
    tokens, turns, is_crossed = host.nas_given
    implementation = host.host_config._attn_implementation
    dropped = [meaning for name, meaning in REFUSED.items() if others.get(name) is not None]
    if dropped or implementation not in SUPPORTED:
        raise NasError(
            f"{type(module).__name__}, which was swapped, met {', '.join(dropped)}"
            f"{'' if dropped else repr(implementation)}; expected the model to attend by one of "
            f"{', '.join(SUPPORTED)}, as at the swap."
        )
    mask, bias = split_mask(attention_mask, is_strict=host.core.needs_mask)
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if attention_mask is None and causal and query.shape[2] > 1 and implementation == "sdpa":
        mask = past_keys(query, key)
    if position_bias is not None:
        bias = position_bias if bias is None else bias + position_bias
    if scaling is not None:
        query = scale_queries(query, scaling)

    out, weights = host.core(
        *(query, key, value, tokens, mask, bias),
        dropout=dropout,
        softcap=softcap,
        rotate=partial(rotated, module, turns=turns),
        is_causal=bool(causal) and not is_crossed,
        is_crossed=is_crossed,
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
