"""The host for attention modules of Hugging Face's transformers that use its AttentionInterface.

Such a module computes queries, keys and values, and passes them to the attention function whose
name is in its config. ``measure`` calls the module with a few tokens: this trial determines head
counts, widths and rotation, and whether the module computes only softmax attention. A swapped
module has a copy of the config with the name of ``attend``, and hooks that store the module's
inputs for ``attend``. The rest of the model does not change.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, Final

import torch
from torch import Tensor, nn

from nas.common.errors import GenomeError, NasError
from nas.compiler.kernels.attention import past_keys
from nas.genome.mechanisms import MECHANISMS
from nas.surgery.core import AttentionCore, HostSizes, scale_queries, split_mask
from nas.surgery.hosts import CORE, HOSTS, Host, refusal

NAME: Final = "nas"
SUPPORTED: Final = ("eager", "sdpa")  # implementations of attention
REFUSED: Final = {"s_aux": "attention sinks", "cache": "a paged cache"}
_INTERFACE: Final = "ALL_ATTENTION_FUNCTIONS"
_ROTATION: Final = "apply_rotary_pos_emb"
_ANGLES: Final = (0.3, 1.1, 2.3)  # rotation angles of the tokens of a trial
_OTHER_SEQUENCE: Final = ("encoder_hidden_states", "key_value_states")  # arguments


@HOSTS.register("transformers")
class _TransformersHost(Host):
    """The host for attention modules of transformers that call the AttentionInterface."""

    about = "transformers (attention that goes through its AttentionInterface)"

    def recognises(self, module: nn.Module) -> bool:
        return _INTERFACE in _source(_kind(module))

    def measure(self, module: nn.Module) -> HostSizes:
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
        is_cross = _is_cross(module)
        return HostSizes(
            dim=dim,
            heads=query.shape[1],
            kv_heads=key.shape[1],
            width=query.shape[3],
            has_bias=any(name.endswith("bias") for name, _ in module.named_parameters()),
            is_rotated=_is_rotated(module, dim, query),
            is_causal=bool(getattr(module, "is_causal", True)) and not is_cross,
            is_sliding=getattr(module, "sliding_window", sliding) is not None,
            is_cross=is_cross,
        )

    def install(self, module: nn.Module, core: AttentionCore) -> None:
        _set_core(module, core)
        module.register_forward_pre_hook(_keep_inputs, with_kwargs=True)
        module.register_forward_hook(_forget_inputs, always_call=True)

    def dry_run(self, module: nn.Module) -> None:
        host: Any = module.eval()
        try:
            with torch.no_grad():
                host(**_trial_arguments(module, host.core.sizes.dim, _ANGLES))
        except Exception as error:
            raise GenomeError(
                f"{type(module).__name__} cannot work with other heads or projections than it was "
                "made with; expected a mechanism with all of them."
            ) from error


class _Recorder(nn.Module):
    """Softmax attention that records its calls, in place of ``AttentionCore`` in a trial call."""

    needs_mask = False

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Tensor, Tensor]] = []

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, x: Tensor, *rest: Any, **options: Any
    ) -> Any:
        self.calls.append((q, k))
        sizes = HostSizes(x.shape[-1], q.shape[1], k.shape[1], q.shape[3])
        return AttentionCore(MECHANISMS["mha"].genome, sizes)(q, k, v, x, *rest, **options)


def _try(module: nn.Module, dim: int, angles: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """Call a module with a few tokens, and return the queries and keys that it computes.

    Args:
        module: the attention module; it is not changed.
        dim: the number of features of a token.
        angles: the rotation angle of each token; the number of angles is the number of tokens.

    Raises:
        NasError: the module fails, or computes something else than softmax attention.
    """
    arguments = _trial_arguments(module, dim, angles)
    modes = {part: part.training for part in module.modules()}
    recorder, config = _Recorder(), module.config
    try:
        module.eval()
        with torch.no_grad(), _exact_products():
            expected = module.forward(**arguments)[0]
            _set_core(module, recorder)
            _keep_inputs(module, (), arguments)
            outputs = module.forward(**arguments)[0]
    except Exception as error:
        raise refusal(
            module, "attends in an unknown way: a trial with three tokens fails"
        ) from error
    finally:
        module.config = config
        for name in (CORE, "host_config", "nas_inputs"):
            if hasattr(module, name):
                delattr(module, name)
        for part, mode in modes.items():
            part.training = mode
    if not recorder.calls or not _is_close(outputs, expected):
        raise refusal(module, "does more than softmax attention, which a mechanism would drop")
    return recorder.calls[0]


@contextmanager
def _exact_products() -> Iterator[None]:
    """Forbid TF32 inside the ``with`` block; with TF32 equal computations differ by 5e-4."""
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)


def _trial_arguments(module: nn.Module, dim: int, angles: tuple[float, ...]) -> dict[str, Any]:
    like = next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))
    tokens = torch.arange(len(angles) * dim, device=like.device).sin().to(like.dtype)
    tokens = tokens.reshape(1, len(angles), dim)
    values = {"hidden_states": tokens, "position_embeddings": _rotation(module, angles, like)}
    if _is_cross(module):
        values |= dict.fromkeys(_OTHER_SEQUENCE, tokens)
    return {
        p.name: values.get(p.name)
        for p in _parameters(_kind(module))
        if p.name in values or p.default is p.empty
    }


def _is_cross(module: nn.Module) -> bool:
    return bool(getattr(module, "is_cross_attention", "Cross" in type(module).__name__))


def _is_rotated(module: nn.Module, dim: int, rotated_query: Tensor) -> bool:
    """Return whether a module rotates its queries.

    Args:
        module: the attention module.
        dim: the number of features of a token.
        rotated_query: the queries of a trial with the angles ``_ANGLES``.

    Raises:
        NasError: the module rotates queries in another way than the function ``rotated``.
    """
    if all(p.name != "position_embeddings" for p in _parameters(_kind(module))):
        if re.search(r"rotary|\brope\b|rope_|_rope", _source(_kind(module)).lower()):
            raise refusal(module, "rotates queries by something other than position_embeddings")
        return False
    query, _ = _try(module, dim, (0.0,) * len(_ANGLES))
    if torch.equal(rotated_query, query):
        return False
    if not hasattr(inspect.getmodule(_forward(_kind(module))), _ROTATION) or not _is_close(
        rotated(module, query, _rotation(module, _ANGLES, query)), rotated_query
    ):
        raise refusal(module, f"rotates queries in another way than {_ROTATION} of its file")
    return True


def _is_close(outputs: Tensor, expected: Tensor) -> bool:
    """Return whether outputs equal expected outputs up to rounding errors.

    The tolerance in float32 is 6e-6 of the largest expected output.
    """
    tolerance = torch.finfo(expected.dtype).eps ** 0.75 * float(expected.abs().max())
    return bool((outputs - expected).abs().max() <= tolerance)


def _rotation(module: nn.Module, angles: tuple[float, ...], like: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cosines and sines of the angles, each of shape (1, tokens, head width).

    All features of a token have the same angle. Device and dtype are taken from ``like``.
    """
    names = ("rotary_ndims", "head_dim", "head_size", "attention_head_size")
    width = next((getattr(module, name) for name in names if hasattr(module, name)), 1)
    wide = torch.tensor(angles, device=like.device)[None, :, None].expand(1, -1, width)
    return wide.cos().to(like.dtype), wide.sin().to(like.dtype)


def _dim(module: nn.Module) -> int:
    """Return the number of features that the module's first projection reads."""
    for part in module.modules():
        for name in ("in_features", "nx"):
            if isinstance(size := getattr(part, name, None), int):
                return size
    raise refusal(module, "has no projection whose input width can be read")


def _set_core(module: nn.Module, core: nn.Module) -> None:
    host: Any = module
    host.core, host.host_config, host.config = core, host.config, copy.copy(host.config)
    # The public attribute would also rename the attention of shared configs below this one.
    host.config._attn_implementation_internal = NAME


def _keep_inputs(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Store the module's tokens and their rotation until it attends (a forward pre-hook)."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, attend)  # here, since models are unpickled in new processes
    names = (p.name for p in _parameters(_kind(module)))
    inputs = dict(zip(names, args, strict=False)) | kwargs
    is_crossed = any(inputs.get(name) is not None for name in _OTHER_SEQUENCE)
    host: Any = module
    host.nas_inputs = inputs["hidden_states"], inputs.get("position_embeddings"), is_crossed


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
    is_causal: bool | None = None,
    softcap: float | None = None,
    position_bias: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """Return outputs (b, n, h, w) and attention weights of the mechanism in a module.

    The mask includes the windows of the model. A causal module without a mask is causal under
    ``sdpa``, for which transformers omits purely causal masks, and sees all keys under ``eager``.

    Raises:
        NasError: the call uses a feature that a mechanism would drop.
    """
    host: Any = module
    tokens, rotation, is_crossed = host.nas_inputs
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
        rotate=partial(rotated, module, rotation=rotation),
        is_causal=bool(causal) and not is_crossed,
        is_crossed=is_crossed,
    )
    return out.transpose(1, 2).contiguous(), weights


def rotated(module: nn.Module, rows: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Return queries or keys, rotated by the function of transformers for the module's model.

    Args:
        module: the attention module.
        rows: queries or keys (b, heads, n, w).
        rotation: cos and sin of the tokens, (1 or b, n, r); only the first r features are rotated.
    """
    width = rotation[0].shape[-1]
    part, rest = rows[..., :width], rows[..., width:]
    rotate = getattr(inspect.getmodule(_forward(_kind(module))), _ROTATION)
    return torch.cat((rotate(part, part[:, :1], *rotation)[0], rest), dim=-1)


def _kind(module: nn.Module) -> Any:
    return type(module)  # mypy takes type[nn.Module] for unhashable


def _forward(kind: Any) -> Any:
    return inspect.unwrap(kind.forward)


@cache
def _source(kind: Any) -> str:
    """Return the source code of a class's forward; empty if the code is not available."""
    try:
        return inspect.getsource(_forward(kind))
    except (OSError, TypeError):
        return ""


@cache
def _parameters(kind: Any) -> tuple[inspect.Parameter, ...]:
    """Return the parameters of a class's forward without ``self``, ``*args``, ``**kwargs``."""
    parameters = list(inspect.signature(_forward(kind)).parameters.values())[1:]
    return tuple(p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
