"""Hosts of Hugging Face's transformers: every attention that asks its AttentionInterface.

What such a module gives to whoever attends is found by trying it on a few tokens, not by its
class: head counts, widths, rotation, and whether softmax attention is all that it does.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

import torch
from torch import Tensor, nn

from nas.mechanisms import MECHANISMS
from nas.surgery.core import AttentionCore, HostSizes
from nas.surgery.hosts import CORE, refusal
from nas.surgery.transformers_attention import (
    REFUSED,
    ROTATION,
    SUPPORTED,
    TABLE,
    arguments_of,
    forget,
    forward_of,
    hand_over,
    point_to_us,
    rotated,
)

_ANGLES: Final = (0.3, 1.1, 2.3)


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
        return HostSizes(
            dim=dim,
            heads=query.shape[1],
            kv_heads=key.shape[1],
            width=query.shape[3],
            has_bias=any(name.endswith("bias") for name, _ in module.named_parameters()),
            is_rotated=_is_rotated(module, dim, query),
        )

    def install(self, module: nn.Module, core: AttentionCore) -> None:
        """Let the module look us up, and hand over what it does not give to who attends."""
        point_to_us(module, core)
        module.register_forward_pre_hook(hand_over, with_kwargs=True)
        module.register_forward_hook(forget, always_call=True)


class _Trial(nn.Module):
    """A core of softmax attention at whatever sizes come; remembers queries and keys."""

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
        raise refusal(module, f"cannot be tried on three tokens ({error})") from error
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
    like = next(p for p in module.parameters() if p.is_floating_point())
    tokens = torch.arange(len(angles) * dim, device=like.device).sin().to(like.dtype)
    tokens = tokens.reshape(1, len(angles), dim)
    known: dict[str, Any] = {
        "hidden_states": tokens,
        "position_embeddings": _turns(module, angles, like),
    }
    if getattr(module, "is_cross_attention", "Cross" in type(module).__name__):
        known |= dict.fromkeys(("encoder_hidden_states", "key_value_states"), tokens)
    parameters = list(inspect.signature(forward_of(module)).parameters.values())[1:]
    return {
        p.name: known.get(p.name)
        for p in parameters
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        and (p.name in known or p.default is p.empty)
    }


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
