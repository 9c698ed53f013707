"""Check which tokens the outputs of an attention block depend on.

An output may depend on tokens of its own example, in a causal task on no later token. Outputs are
compared in float64 while other tokens change: the tokens from each position on, and the other
examples of a batch. For a block with code that is not part of ``nas``, the gradients of outputs
must vanish at these tokens, too. A dependence is found if it is above ``TOLERANCE`` of the largest
output or gradient, so a leak behind a gate of 1e-11 is found, and one behind a gate of 1e-13 is
not; the second has no effect on scores in float32, unless training opens the gate. Therefore blocks
are checked before training on random tokens, and after it on the tokens of the last evaluation, a
user's modules in all layers together. Such code is also checked in float32, and only there, with
``TOLERANCE_32``, if it does not compute in float64.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from nas.common.errors import NasWarning
from nas.genome import ModelSizes

# Standard deviation of the noise added to weights, as the input of a zero weight has no effect.
SPREAD: Final = 0.1
EXAMPLES: Final = 4  # of a batch of random tokens, and examples that are compared one by one
ENDS: Final = 64  # tokens of a long sequence at which the probe changes the tokens that follow
TOKENS: Final = 2**14  # of all changed sequences, for code that is not part of ``nas``
SPARED: Final = 0.25  # share of changes with an effect in float32, if none has one in float64
PAIRS: Final = 2**24  # pairs of query and key, in all heads, of a batch of the probe
TOLERANCE: Final = 1e-12
TOLERANCE_32: Final = 1e-5  # for a block that does not compute in float64
OURS: Final = ("nas.", "torch.")


class Constant(Exception):  # noqa: N818 - an outcome, not a fault
    """Raised if an attention block gives the same output for every input."""


class Leak(Exception):  # noqa: N818 - an outcome, not a fault
    """Raised if an attention block uses later tokens in a causal task, or another example."""


class LastTokens:
    """The tokens, shape (b, n, dim), of the last of the largest batches of evaluations."""

    def __init__(self, block: nn.Module) -> None:
        self.tokens: Tensor | None = None
        block.register_forward_pre_hook(self._note)

    def _note(self, block: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if not block.training and (self.tokens is None or len(inputs[0]) >= len(self.tokens)):
            self.tokens = inputs[0]


class Stack(nn.Module):
    """The layers of a model behind the interface of an attention block.

    A user's modules are probed together: later layers may use what the first have stored.
    """

    def __init__(self, layers: Iterable[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None, **_: bool) -> Tensor:
        """Return the tokens after all layers, which hide later tokens if their task is causal."""
        for layer in self.layers:
            x = layer(x, padding=key_padding_mask)
        return x


def probe(
    block: nn.Module,
    sizes: ModelSizes,
    *,
    is_causal: bool,
    is_padded: bool = False,
    tokens: Tensor | None = None,
) -> float:
    """Run a copy of an attention block, and raise if its output is unusable.

    A block whose output is not finite, or has a wrong shape, passes; its training will fail. The
    result is the tolerance: ``TOLERANCE_32`` if the block does not compute in float64. ``tokens``,
    (b, n, dim), are those of a batch; by default they are random, drawn from torch's global
    generator as is the noise of the weights.

    Raises:
        Leak: the output for an example depends on other examples of the batch; ``is_causal`` is set
            and the output for a token depends on later tokens; or ``is_padded`` is set and it
            depends on padding.
        Constant: the output does not depend on the input.
    """
    is_ours = all(type(module).__module__.startswith(OURS) for module in block.modules())
    with _WithoutGraphs():
        plain = copy.deepcopy(block).float().cpu().eval()
    block = copy.deepcopy(plain)
    with torch.no_grad():
        for weight in block.parameters():
            weight.add_(SPREAD * torch.randn_like(weight))
    if tokens is None or len(tokens) < EXAMPLES:
        one, other = torch.randn(2, 1, sizes.tokens, sizes.dim)
        tokens = torch.cat([one, other, (one + other) / 2**0.5, (one - other) / 2**0.5])
    x = tokens[:EXAMPLES] if is_ours else tokens  # other code may mix the examples of large batches
    x = x.detach().float().cpu()
    options = {"is_causal": True} if is_causal else {}
    if not is_ours and not _run(block, x[:1], options).isfinite().all():
        block = plain  # a weight that must be positive
    check = partial(_check, sizes=sizes, options=options, is_ours=is_ours, is_padded=is_padded)
    with _float64():
        double = _double(block, x[:1].double(), options, is_ours)
        if double is not None:
            check(double, x.double(), TOLERANCE)
    if double is None or not is_ours:  # other code may compute otherwise in float32
        check(block, x, TOLERANCE_32, spared=SPARED if double else 0.0)
    return TOLERANCE if double else TOLERANCE_32


class _WithoutGraphs(TorchFunctionMode):
    """Copies results that a module has kept, as no deep copy of a tensor with a graph exists."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_kept = func is Tensor.__deepcopy__ and args[0].grad_fn is not None
        return args[0].detach().clone() if is_kept else func(*args, **(kwargs or {}))


@torch.no_grad()
def _run(block: nn.Module, x: Tensor, options: Mapping[str, Any]) -> Tensor:
    return cast("Tensor", block(x, **options))


def _double(
    block: nn.Module, x: Tensor, options: dict[str, bool], is_ours: bool
) -> nn.Module | None:
    """Return a copy of a block in float64; None if the block does not compute in float64.

    If a block converts its input to float32 inside, a change of 1e-13 has no effect, or one as
    large as the rounding of float32.
    """
    try:
        double = copy.deepcopy(block).double()
        out = _run(double, x, options)
        if out.dtype is not torch.float64 or is_ours or not out.isfinite().all():
            return double if out.dtype is torch.float64 else None
        change = (_run(double, x + 1e-13 * torch.randn_like(x), options) - out).abs().max()
    except Exception:  # in float32, the block may not raise
        return None
    return double if 0 < change <= 1e-9 * out.abs().max() else None


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
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(default)


def _check(
    block: nn.Module,
    x: Tensor,
    tolerance: float,
    *,
    sizes: ModelSizes,
    options: dict[str, bool],
    is_ours: bool,
    is_padded: bool,
    spared: float = 0.0,
) -> None:
    """Check a block whose results may differ by ``tolerance``; see ``probe``.

    A share ``spared`` of the changes may have an effect, by rounding in float32.
    """
    out = _run(block, x, options)
    if out.shape != x.shape or not out.isfinite().all():
        return  # the training will fail
    rows = torch.linspace(0, len(x) - 1, EXAMPLES).long()
    alone = torch.cat([_run(block, x[row : row + 1], options) for row in rows.tolist()])
    if _differ(alone, out[rows], tolerance).mean() > spared:
        raise Leak(_OTHERS)
    if options and x.shape[1] > 1:
        effects = []
        for changed, is_kept in _changed_ends(x, sizes, is_ours):
            results = _run(block, changed, options)
            effects.append(_differ(results[:1] * is_kept, results[1:] * is_kept, tolerance))
        if torch.cat(effects).mean() > spared:
            raise Leak(_LATER)
    if is_padded and not is_ours:
        is_padding = torch.arange(x.shape[1])[None, :, None] >= -(-3 * x.shape[1] // 4)
        hidden = {"key_padding_mask": is_padding[..., 0].expand(len(x), -1)}
        outputs, changed_outputs = (
            _run(block, torch.where(is_padding, end, x), hidden) * ~is_padding
            for end in (x, x.roll(1, dims=0))
        )
        if _differ(outputs, changed_outputs, tolerance).mean() > spared:
            raise Leak("the output for a token depends on padding, which the mask hides")
    if not is_ours:
        _check_gradients(block, x[:EXAMPLES], options, tolerance)
    if not _differ(out[:1], out[1:2], tolerance).any():
        raise Constant("the mechanism gives the same output for every input")


_OTHERS: Final = "the output for an example depends on other examples of its batch"
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
    for token in _positions(n - 1 if options else n, ENDS, is_random=True) - 1:
        (gradient,) = torch.autograd.grad(
            out[1, token] @ above, x, retain_graph=True, materialize_grads=True
        )
        size = gradient.abs().amax(dim=2)
        least = tolerance * size.max()
        if (size[[0, 2, 3]] > least).any():
            raise Leak(_OTHERS)
        if options and (size[1, token + 1 :] > least).any():
            raise Leak(_LATER)


def _changed_ends(x: Tensor, sizes: ModelSizes, is_ours: bool) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of the first example and copies that end like the second, each with a mask.

    The mask, (copies, n, 1), is True at the tokens that a copy shares with the example.
    """
    n = x.shape[1]
    most = ENDS if is_ours else max(ENDS // 2, TOKENS // n)
    size = max(1, PAIRS // (sizes.heads * n * n))
    for some in torch.split(_positions(n - 1, most, is_random=not is_ours), size):
        is_kept = torch.arange(n)[None, :, None] < some[:, None, None]
        yield torch.cat([x[:1], torch.where(is_kept, x[:1], x[1:2])]), is_kept


def _positions(last: int, most: int, *, is_random: bool) -> Tensor:
    """Return the positions 1, ..., ``last``, or ``most`` of them, apart by equal distances.

    If ``is_random``, each is random between its neighbours, so that no pattern is missed.
    """
    edges = torch.linspace(1, last, min(last, most)).long()
    if not is_random or last <= most:
        return edges
    widths = torch.diff(edges, append=torch.tensor([last + 1]))
    return edges + (torch.rand(len(edges)) * widths).long()


def _differ(output: Tensor, other: Tensor, tolerance: float) -> Tensor:
    """Return 1 for each example that differs by more than the tolerance, and 0 for others."""
    differences = (output - other).abs().flatten(1).amax(1)
    return (differences > tolerance * output.abs().max()).float()
