"""Check which tokens the outputs of an attention block depend on.

An output may depend on tokens of its own example, in a causal task on no later token. Outputs are
compared in float64 while other tokens change: the tokens from each position on, and the other
examples of a batch. For a block with code that is not part of ``nas``, the gradients of outputs
must vanish at these tokens, too. A dependence is found if it is above ``TOLERANCE`` of the largest
output or gradient, so a leak behind a gate of 1e-11 is found, and one behind a gate of 1e-13 is
not; the second has no effect on scores in float32, unless training opens the gate. Therefore blocks
are checked before training on random tokens, and after it on the tokens of the last evaluation.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch
from torch import Tensor, nn

from nas.common.errors import NasWarning
from nas.genome import ModelSizes

SPREAD: Final = 0.1
"""Standard deviation of the noise added to weights, as the input of a zero weight has no effect."""
EXAMPLES: Final = 4
"""Number of examples of a batch of random tokens, and of examples compared one by one."""
ENDS: Final = 64
"""Number of tokens of a long sequence at which the probe changes the tokens that follow."""
PAIRS: Final = 2**24
"""Pairs of query and key, in all heads, of a batch of the probe."""
TOLERANCE: Final = 1e-12
TOLERANCE_32: Final = 1e-5
"""The tolerance for a block that does not compute in float64."""
OURS: Final = ("nas.", "torch.")


class Constant(Exception):  # noqa: N818 - an outcome, not a fault
    """Raised if an attention block gives the same output for every input."""


class Leak(Exception):  # noqa: N818 - an outcome, not a fault
    """Raised if an attention block uses later tokens in a causal task, or another example."""


class LastTokens:
    """The tokens, shape (b, n, dim), that a block was last called with in evaluation mode."""

    def __init__(self, block: nn.Module) -> None:
        self.tokens: Tensor | None = None
        block.register_forward_pre_hook(self._note)

    def _note(self, block: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if not block.training:
            self.tokens = inputs[0]


def probe(
    block: nn.Module, sizes: ModelSizes, *, is_causal: bool, tokens: Tensor | None = None
) -> float:
    """Run a copy of an attention block, and raise if its output is unusable.

    A block whose output is not finite, or has a wrong shape, passes; its training will fail. The
    result is the tolerance: ``TOLERANCE_32`` if the block does not compute in float64.

    Args:
        tokens: the tokens of a batch, shape (b, n, dim); by default random ones, drawn from torch's
            global generator as is the noise of the weights.

    Raises:
        Leak: the output for an example depends on other examples of the batch; or ``is_causal`` is
            set and the output for a token depends on later tokens.
        Constant: the output does not depend on the input.
    """
    is_ours = all(type(module).__module__.startswith(OURS) for module in block.modules())
    block = copy.deepcopy(block).float().cpu().eval()
    with torch.no_grad():
        for weight in block.parameters():
            weight.add_(SPREAD * torch.randn_like(weight))
    if tokens is None or len(tokens) < EXAMPLES:
        one, other = torch.randn(2, 1, sizes.tokens, sizes.dim)
        tokens = torch.cat([one, other, (one + other) / 2**0.5, (one - other) / 2**0.5])
    x = tokens[:EXAMPLES] if is_ours else tokens  # other code may mix the examples of large batches
    x = x.detach().float().cpu()
    options = {"is_causal": True} if is_causal else {}
    with _float64():
        try:
            double = copy.deepcopy(block).double()
            is_double = double(x[:1].double(), **options).dtype is torch.float64
        except Exception:  # in float32, the block may not raise
            is_double = False
        if is_double:
            _check(double, x.double(), sizes, options, is_ours, TOLERANCE)
    if is_double:
        return TOLERANCE
    _check(block, x, sizes, options, is_ours, TOLERANCE_32)
    return TOLERANCE_32


def warn_of_tolerance(tolerance: float, name: object) -> None:
    """Warn if the probe of a mechanism had to compute in float32."""
    if tolerance == TOLERANCE_32:
        warnings.warn(
            f"{name}: does not compute in float64; in float32 the check finds uses of later tokens "
            f"or other examples above {tolerance:.0e} of the largest output, not {TOLERANCE:.0e}.",
            NasWarning,
            stacklevel=3,
        )


@contextmanager
def _float64() -> Iterator[None]:
    """Create tensors in float64 unless a dtype is given."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(default)


def _check(
    block: nn.Module,
    x: Tensor,
    sizes: ModelSizes,
    options: dict[str, bool],
    is_ours: bool,
    tolerance: float,
) -> None:
    with torch.no_grad():
        out = block(x, **options)
        if out.shape != x.shape or not out.isfinite().all():
            return  # the training will fail
        for i in torch.linspace(0, len(x) - 1, EXAMPLES).long().tolist():
            if not _is_same(block(x[i : i + 1], **options), out[i : i + 1], tolerance):
                raise Leak("the output for an example depends on other examples of its batch")
        if options:
            for changed, is_kept in _changed_ends(x, sizes):
                results = block(changed, **options)
                if not _is_same(results[:1] * is_kept, results[1:] * is_kept, tolerance):
                    raise Leak(_LATER)
    if not is_ours:
        _check_gradients(block, x[:EXAMPLES], options, tolerance)
    if _is_same(out[:1], out[1:2], tolerance):
        raise Constant("the mechanism gives the same output for every input")


_LATER: Final = (
    "the output for a token depends on later tokens, in a causal task; expected that forward "
    "accepts `mask` and hides the keys at which it is False"
)


def _check_gradients(
    block: nn.Module, x: Tensor, options: dict[str, bool], tolerance: float
) -> None:
    """Raise Leak if the gradient of an output at a token that it must not use is not zero."""
    x = x.clone().requires_grad_()
    out = block(x, **options)
    if not out.requires_grad:
        return
    n, dim = x.shape[1:]
    above = torch.linspace(-1.0, 1.0, dim, dtype=x.dtype)
    for token in _positions(n - 1 if options else n) - 1:
        (gradient,) = torch.autograd.grad(
            out[1, token] @ above, x, retain_graph=True, materialize_grads=True
        )
        size = gradient.abs().amax(dim=2)
        least = tolerance * size.max()
        if (size[[0, 2, 3]] > least).any():
            raise Leak("the output for an example depends on other examples of its batch")
        if options and (size[1, token + 1 :] > least).any():
            raise Leak(_LATER)


def _changed_ends(x: Tensor, sizes: ModelSizes) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of the first example followed by copies that end like the second.

    Each comes with a mask, shape (copies, n, 1), True at the tokens that a copy shares with the
    example. The ends begin at each token, or at ``ENDS`` tokens of a longer sequence.
    """
    n = x.shape[1]
    size = max(1, PAIRS // (sizes.heads * n * n))
    for some in torch.split(_positions(n - 1), size):
        is_kept = torch.arange(n)[None, :, None] < some[:, None, None]
        yield torch.cat([x[:1], torch.where(is_kept, x[:1], x[1:2])]), is_kept


def _positions(last: int) -> Tensor:
    """Return the positions 1, ..., ``last``, or ``ENDS`` of them."""
    return torch.linspace(1, last, min(last, ENDS)).long()


def _is_same(output: Tensor, other: Tensor, tolerance: float) -> bool:
    return bool((output - other).abs().max() <= tolerance * output.abs().max())
