"""Operations of the reference form, counted as torch computes them.

Products count by torch's own formulas, elementwise work apart, by the tags that torch gives its
operations; what moves numbers only is free, and an operation of none of these kinds is an error.
"""

from __future__ import annotations

import warnings
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from nas.compiler.interpreter import ReferenceAttention, check_sizes
from nas.errors import GenomeError, NasError

if TYPE_CHECKING:
    from nas.compiler import Plan

ELEMENTWISE: Final = "elementwise"
_COMPUTED_NUMBERS: Final = 2**18  # scores and weights of a block that is counted by running it
_TAGS: Final = frozenset({torch.Tag.pointwise, torch.Tag.reduction})
# Operations to which torch gives neither tag, and those that only move numbers or make them up.
_POINTWISE: Final = """
    _softmax _safe_softmax _log_softmax _fused_rms_norm native_layer_norm native_group_norm
    native_batch_norm cumsum sort topk
"""
_FREE: Final = """
    clone copy_ _to_copy cat stack constant_pad_nd index gather repeat tril triu full_like
    ones_like zeros_like empty_like new_zeros new_ones new_full new_empty fill_ zero_ lift_fresh
    _unsafe_view
"""


def count_operations(
    plan: Plan, dim: int, heads: int, tokens: int, qkv_bias: bool = False
) -> Counter[str]:
    """Multiply-adds of the reference form by operation, at batch 1.

    Args:
        plan: of a mechanism without window; the reference form computes every pair.

    Returns:
        Under ``ELEMENTWISE`` the elements that pointwise operations touch, which are no
        multiply-adds.

    Raises:
        GenomeError: the mechanism does not exist at this size.
        NasError: it uses an operation whose cost nobody has stated.
    """
    # A small block is computed sooner than torch says of what shapes its tensors would be.
    is_small = heads * tokens**2 + 4 * dim**2 <= _COMPUTED_NUMBERS
    with torch.device("cpu" if is_small else "meta"), torch.random.fork_rng(devices=[]):
        module = ReferenceAttention(plan, dim, heads, qkv_bias).eval()
        x = torch.zeros(1, tokens, dim)
    return count_calls(module, x)


def count_calls(module: torch.nn.Module, x: Tensor) -> Counter[str]:
    """What a module computes of ``x``, by operation.

    Raises:
        GenomeError: the module refuses ``x``.
        NasError: it uses an operation whose cost nobody has stated.
    """
    counting = _Counting()
    with torch.no_grad(), warnings.catch_warnings(), counting:
        warnings.simplefilter("ignore")
        try:
            module(x)
        except ValueError as error:  # a module's own word about the input, such as its length
            raise GenomeError(f"{error}.") from None
    return counting.found


class _Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up what runs within."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        packet, name = func.overloadpacket, func.overloadpacket.__name__
        read = [t for t in args if isinstance(t, Tensor)]
        made = [t for t in (out if isinstance(out, tuple) else (out,)) if isinstance(t, Tensor)]
        if packet in flop_registry:
            self.found[name] += flop_registry[packet](*args, **(kwargs or {}), out_val=out) // 2
        elif name == "addcmul":  # a sum of scaled tensors: one multiply-add an element
            self.found[name] += out.numel()
        elif read and made and not func.is_view and name not in _FREE.split():
            if name not in _POINTWISE.split() and _TAGS.isdisjoint(func.tags):
                raise NasError(
                    f"nobody has stated what {name} costs; expected an entry in nas/counting.py "
                    "for each operation of a primitive."
                )
            self.found[ELEMENTWISE] += max(t.numel() for t in (*read, *made))
        return out


def count_parameters(plan: Plan, dim: int, heads: int, qkv_bias: bool = False) -> int:
    """Learned numbers of a block; modules are built once for all genomes.

    Raises:
        GenomeError: the mechanism does not exist at this size.
    """
    check_sizes(dim, heads)
    total = 0
    for stream in plan.streams:
        if stream.is_projected:
            width = stream.type.head_count(heads) * stream.type.channels(dim, heads)
            total += width * (dim + qkv_bias)
    for step in plan.steps:
        sizes = plan.sizes(step, dim, heads, qkv_bias)
        # Without numbers where they are many; torch takes seconds to learn how, so not before.
        device = "cpu" if dim <= 512 else "meta"
        module: Any = step.primitive.module
        total += _learned(module, tuple((sizes | step.params).items()), device)
    wo = dim * (plan.merged_width(dim, heads) + 1) if plan.genome.projections.has_wo else 0
    return total + wo


@lru_cache(maxsize=4096)
def _learned(module: Any, given: tuple[tuple[str, Any], ...], on: str) -> int:
    with torch.device(on), torch.random.fork_rng(devices=[]):
        try:
            return sum(p.numel() for p in module(**dict(given)).parameters())
        except ValueError as error:
            raise GenomeError(f"{error}.") from None
