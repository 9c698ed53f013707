"""Attention by flash-linear-attention (fla), a library of Triton kernels for GPUs and bfloat16.

The library is optional: ``pip install -e '.[gpu]'``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nas.compiler.kernels import computed_dtype
from nas.genome.primitives.tensors import Gates, Query, Sums, Tokens, Values

TWIN_TOKENS: Final = 256  # for fewer, fla's search for the best settings of a kernel does not pay
TWIN_WIDTH: Final = 256  # of a head, the most that fla computes; a sum of weights is a feature
STICK_BREAKING: Final = "parallel_stickbreaking_attn"
# Without and with the delta rule: without gates, with gates of a head, with gates of features.
TWINS: Final = (
    ("chunk_simple_gla", "chunk_simple_gla", "chunk_gla"),
    ("chunk_delta_rule", "chunk_gated_delta_rule", "chunk_kda"),
)


@cache
def twin(name: str) -> Callable[..., tuple[Tensor, Tensor]] | None:
    """Return a function of fla, or None if it is not installed or refuses to run here."""
    try:
        import fla.ops
        import fla.utils as on
    except ModuleNotFoundError:
        return None
    # There, gradients of gated kernels are wrong, and fla refuses them.
    is_wrong = on.IS_NVIDIA_HOPPER and on.TRITON_ABOVE_3_4_0 and not on.TRITON_ABOVE_3_7_1
    return None if is_wrong else getattr(fla.ops, name)


def has_twin(query: Query, values: Values) -> bool:
    """Whether fla is installed and computes attention of these operands."""
    is_compiled = torch.compiler.is_compiling()
    if is_compiled or not query.is_cuda or computed_dtype(query) != torch.bfloat16:
        return False
    if query.shape[2] < TWIN_TOKENS or max(query.shape[3], values.shape[3]) >= TWIN_WIDTH:
        return False
    return all(twin(name) for name in (*TWINS[0], *TWINS[1], STICK_BREAKING))


def twin_sums(
    query: Tokens,
    key: Tokens,
    values: Tokens,
    scale: float,
    *,
    gates: Gates | None = None,
    strength: Tokens | None = None,
    divide: bool = False,
) -> Sums:
    """Return scale q_t·S_t for each token t, with S_t = diag(f_t) S_{t-1} + k_t^T u_t.

    u_t is v_t, or with ``strength`` b the delta rule's b_t (v_t - k_t diag(f_t) S_{t-1}). The gates
    f are 1 if there are none. With ``divide`` the sums are divided by the number of their tokens.
    """
    kind, more = computed_dtype(query), {}
    width = 0 if gates is None else gates.shape[-1]
    if gates is not None:
        logarithms = torch.diff(F.pad(gates, (0, 0, 1, 0)), dim=2).transpose(1, 2)
        more["g"] = _wide(logarithms) if width > 1 else logarithms[..., 0]
    if strength is not None:
        more["beta"] = strength[..., 0].transpose(1, 2)
    function = twin(TWINS[strength is not None][min(width, 2)])
    assert function is not None, "has_twin found the library"
    operands = (_wide(x.transpose(1, 2).to(kind)) for x in (query, key, values))
    sums = function(*operands, scale=scale, **more)[0].transpose(1, 2)[..., : values.shape[3]]
    count = torch.arange(1, 1 + sums.shape[2], device=sums.device)[:, None]
    return sums / count.to(sums.dtype) if divide else sums


def _wide(tokens: Float[Tensor, "b n h w"]) -> Float[Tensor, "b n h _"]:
    """Return tokens with features 0 up to a multiple of 16, the widths that fla's kernels take."""
    return F.pad(tokens, (0, -tokens.shape[-1] % 16))


def twin_stick_breaking(query: Query, key: Tokens, values: Values, scale: float) -> Sums:
    """Return causal attention with the weights of the primitive ``stick_breaking``."""
    function, kind = twin(STICK_BREAKING), computed_dtype(query)
    assert function is not None, "has_twin found the library"
    operands = (x.transpose(1, 2).to(kind) for x in (query, key, values))
    return function(*operands, scale=scale, attend_current=True)[0].transpose(1, 2)
